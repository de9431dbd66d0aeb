"""Program, first part: takes a job, and goes through its query tiles and their key tiles."""

__all__ = ["SOURCE"]

SOURCE = """
; ---- A job's words, and its settings.
start:
        phase #0
        li    n, #64
        mov   p, =JOB
next_word:
        inj   w
        stp   p, w
        loop  n, @next_word
        mov   p, =JOB
        ld    w, p, #0
        and   dense, w, #1
        and   refresh, w, #2            ; where a flag pair has its V flag
        and   has_state, w, #4
        sh    #8
        mulu  w, w, =1, trunc
        and   o_shift, w, #15
        ld    w, p, #1
        call  link, @halves
        mov   query_tiles, low
        mov   key_tiles, high
        ld    w, p, #2
        call  link, @halves
        mov   last_rows, low
        mov   last_keys, high
        ld    w, p, #3
        call  link, @halves
        add   low, low, #4              ; Q5.11 to eight fraction bits
        add   high, high, #4
        sh    #3
        mulu  code_prune, low, =1, trunc
        mulu  code_quant, high, =1, trunc
        ld    w, p, #5
        call  link, @halves
        mov   k_hp, low
        mov   k_v, high
        ld    w, p, #4
        call  link, @halves
        and   head_shift, high, #127
        mov   head_mantissa, low

        beq   query_tiles, =0, @refuse
        beq   key_tiles, =0, @refuse
        beq   last_rows, =0, @refuse
        blt   =TQ, last_rows, @refuse
        beq   last_keys, =0, @refuse
        blt   =TK, last_keys, @refuse
        blt   head_mantissa, =32768, @refuse
        blt   head_shift, =31, @refuse
        or    w, dense, has_state
        beq   w, =0, @refuse

        ; The fourth word of a region: where its next tile is.
        add   p, p, #8
        li    n, #10
fresh_region:
        ld    w, p, #0
        st    p, #3, w
        add   p, p, #4
        loop  n, @fresh_region

; ---- Query tiles: Q, state of rows.
        mov   query, query_tiles        ; counts down
query_tile:
        phase #LOAD
        mov   rows, =TQ
        li    tail_q, #0
        bne   query, =1, @whole_query
        mov   rows, last_rows
        li    tail_q, #1
whole_query:
        mov   tail, tail_q
        mov   region, =AT_Q
        mov   words, =Q_WORDS
        mov   beats, =Q_BEATS
        call  link, @place
        req   address, beats, #0
        in    a_q, #1
        mov   w, =Q
        ins   w, words

        mov   row, =ROWS
        mov   n, rows
fresh_row:
        st    row, #0, =NO_LOGIT        ; M
        st    row, #1, =0               ; L
        st    row, #2, =0               ; unit of O
        st    row, #3, =0               ; whether O has something
        st    row, #6, =NONE            ; new reference
        add   row, row, #16
        loop  n, @fresh_row

        beq   has_state, =0, @no_rows
        mov   region, =AT_ROWS_IN
        mov   beats, =ROWS_IN_BEATS
        call  link, @place
        req   address, beats, #0
        mov   row, =ROWS
        mov   n, rows
old_row:
        in    w, #1                     ; c, sign extended
        xor   w, w, =32768
        sub   w, w, =32768
        st    row, #4, w
        in    w, #1                     ; reference
        xor   w, w, =32768
        sub   w, w, =32768
        st    row, #5, w
        add   row, row, #16
        loop  n, @old_row
no_rows:
        mov   p, =AT_K                  ; K and V begin anew
        ld    w, p, #0
        st    p, #3, w
        mov   p, =AT_V
        ld    w, p, #0
        st    p, #3, w

        mov   key, key_tiles            ; counts down
key_tile:
        jmp   @tile
tile_done:
        loop  key, @key_tile
        jmp   @finish
finished:
        loop  query, @query_tile
        done  =0
        jmp   @start
refuse:
        done  =1
        jmp   @start

; ---- low, high: halves of w.
halves:
        and   low, w, =65535
        sh    #16
        mulu  high, w, =1, trunc
        jr    link

; ---- address, words, beats: the next tile of a region; words and beats are a whole tile's before.
place:
        ld    address, region, #3
        ld    w, region, #1
        add   w, w, address
        st    region, #3, w
        beq   tail, =0, @placed
        ld    w, region, #2
        and   words, w, =65535
        sh    #16
        mulu  beats, w, =1, trunc
placed:
        jr    link

; ---- log: log2 of v, 8 fraction bits; v is not 0.
log2:
        call  link2, @normalize
        sh    #23
        mulu  w, v, =1, trunc
        tab   log, w, log
        mul   e, e, =256, none
        add   log, log, e
        jr    link

; ---- log: log2 of v, 12 fraction bits, by squares of 16 bits.
log2_fine:
        call  link2, @normalize
        mov   log, e
        sh    #16
        mulu  v, v, =1, trunc
        sh    #15
        li    bits, #12
fine_bit:
        mulu  v, v, v, trunc
        add   log, log, log
        blt   v, =65536, @fine_zero
        add   log, log, #1
        sh    #1
        mulu  v, v, =1, trunc
        sh    #15
fine_zero:
        loop  bits, @fine_bit
        jr    link

; ---- v shifted left until bit 31 is 1; e: where that was.
normalize:
        li    e, #31
        blt   v, =0, @normal
        bge   v, =65536, @normal_next
        li    e, #15
        mulu  v, v, =32768, none
        add   v, v, v
normal_next:
        blt   v, =0, @normal
        add   v, v, v
        add   e, e, #-1
        jmp   @normal_next
normal:
        jr    link2

; ---- f, places: 2**-u is f * 2**-(15 + places); u has 12 fraction bits.
exp2_fine:
        sh    #8
        mul   w, u, =1, trunc
        and   w, w, #15
        tab   f, w, chord
        add   w, w, #16
        tab   w, w, chord
        and   places, u, =255
        sh    #12
        mul   w, w, places, round
        sub   f, f, w
        mul   places, u, =1, trunc
        jr    link2

; ---- f: 2**-|difference| in U1.15; 12 fraction bits.
factor:
        sub   u, =0, difference
        max   u, u, difference
        call  link2, @exp2_fine
        bge   places, =16, @factor_zero
        shr   places
        mul   f, f, =1, round
        jr    link
factor_zero:
        li    f, #0
        jr    link
"""
