"""Program, second part: a tile. Loads it, goes through its rows, stores its masks and state."""

__all__ = ["source"]

_OLD_STATE_16 = """
        in    w, #1
        xor   w, w, =32768
        sub   w, w, =32768
"""

_OLD_STATE_8 = """
        in    w, #0
        xor   w, w, =128
        sub   w, w, =128
        beq   w, =-128, @old_none
        mul   w, w, =32, none
        ld    t, row, #5
        add   w, w, t
        max   w, w, =NONE+1
        min   w, w, =LARGEST
        jmp   @old_kept
old_none:
        mov   w, =NONE
old_kept:
"""

_NEW_STATE_16 = """
        out   w, #1
"""

_NEW_STATE_8 = """
        beq   w, =NONE, @new_none
        ld    t, row, #6
        sub   w, w, t
        sh    #5
        mul   w, w, =1, round
        max   w, w, #-127
        min   w, w, #127
        jmp   @new_kept
new_none:
        li    w, #-128
new_kept:
        out   w, #0
"""

_SOURCE = """
; ---- Loads of a tile.
tile:
        phase #LOAD
        mov   keys, =TK
        li    tail_k, #0
        bne   key, =1, @whole_keys
        mov   keys, last_keys
        li    tail_k, #1
whole_keys:
        bne   dense, =0, @no_masks
        li    tail, #0
        mov   region, =AT_CODE_IN
        mov   beats, =CODE_IN_BEATS
        call  link, @place
        req   address, beats, #0
        mov   p, =PAIRS
        mov   n, =CODE_BYTES
        sh    #2
mask_byte:
        in    w, #0
        and   t, w, #3
        stp   p, t
        mulu  w, w, =1, trunc
        and   t, w, #3
        stp   p, t
        mulu  w, w, =1, trunc
        and   t, w, #3
        stp   p, t
        mulu  w, w, =1, trunc
        stp   p, w
        loop  n, @mask_byte
no_masks:
        beq   has_state, =0, @no_state
        mov   tail, tail_q
        mov   region, =AT_STATE_IN
        mov   beats, =STATE_IN_BEATS
        call  link, @place
        req   address, beats, #0
        mov   row, =ROWS
        mov   n, rows
old_state:
{old_state}
        st    row, #7, w
        add   row, row, #16
        loop  n, @old_state
no_state:
        mov   tail, tail_k
        mov   region, =AT_K
        mov   words, =K_WORDS
        mov   beats, =K_BEATS
        call  link, @place
        req   address, beats, #0
        in    a_k, #1
        mov   w, =K
        ins   w, words
        mov   region, =AT_V
        mov   words, =V_WORDS
        mov   beats, =V_BEATS
        call  link, @place
        req   address, beats, #0
        in    a_v, #1
        mov   w, =V
        ins   w, words

; ---- Factor of the logits: mantissa, and z_shift.
        mul   w, a_q, a_k, none
        li    mantissa, #0
        li    z_shift, #63
        beq   w, =0, @scaled
        add   z_shift, head_shift, #-30
scale_next:
        bge   w, =0x40000000, @scale_normal
        add   w, w, w
        add   z_shift, z_shift, #1
        jmp   @scale_next
scale_normal:
        sh    #30
        mul   mantissa, w, head_mantissa, trunc
        blt   mantissa, =65536, @scale_fits
        sh    #1
        mul   mantissa, mantissa, =1, trunc
        add   z_shift, z_shift, #-1
scale_fits:
        min   z_shift, z_shift, #63
scaled:
        max   v, a_v, #1                ; unit of P times V
        call  link, @log2_fine
        mov   unit_v, log

; ---- Block rows.
        mov   p, =NEW
        mov   n, =ALL_PAIRS
fresh_pair:
        stp   p, =0
        loop  n, @fresh_pair
        mov   row, =ROWS
        mov   q_at, =Q
        mov   o_at, =O
        mov   pair, =PAIRS
        mov   new, =NEW
        mov   left, rows
block_row:
        phase #QK
        mov   p, =BLOCKS                ; what is to be computed of it
        li    key0, #0
        mov   k_at, =K
        li    v_at, #0                 ; from the first word of V on
        mov   count, =COUNTS
        mov   from, pair
block:
        st    count, #0, =0             ; elements, and above them those in high precision
        li    kind, #2
        bne   dense, =0, @block_high
        ld    w, from, #0
        or    w, w, refresh
        and   t, w, #1
        bne   t, =0, @block_high
        beq   w, =0, @block_next
        li    kind, #1
        evb   #0
        jmp   @block_kept
block_high:
        evb   #1
block_kept:
        st    p, #0, kind
        st    p, #1, key0
        st    p, #2, k_at
        st    p, #3, v_at
        st    p, #4, count
        add   p, p, #5
block_next:
        add   key0, key0, #8
        add   k_at, k_at, =K_BLOCK
        add   v_at, v_at, =V_BLOCK
        add   count, count, #1
        add   from, from, #1
        blt   key0, keys, @block
        mov   blocks_end, p
        mov   counts_end, count
        add   pair, pair, =KEY_BLOCKS

        li    r, #0
next_row:
        jmp   @row_begin
row_done:
        add   row, row, #16
        add   o_at, o_at, =O_ROW
        add   left, left, #-1
        beq   left, =0, @block_row_done
        add   r, r, #1
        blt   r, =4, @next_row

block_row_done:
        mov   p, =COUNTS                ; new flag pairs
        sh    #16
        mov   to, new
flags:
        li    w, #0
        ld    t, p, #0
        mul   u, t, =1, trunc
        bge   k_hp, u, @no_hp_flag
        li    w, #1
no_hp_flag:
        and   t, t, =65535
        bge   k_v, t, @no_v_flag
        or    w, w, #2
no_v_flag:
        stp   to, w
        add   p, p, #1
        bne   p, counts_end, @flags
        add   new, new, =KEY_BLOCKS
        add   q_at, q_at, =Q_STEP
        bne   left, =0, @block_row

; ---- State and masks of the tile.
        phase #STORE
        mov   tail, tail_q
        mov   region, =AT_STATE_OUT
        mov   beats, =STATE_OUT_BEATS
        call  link, @place
        req   address, beats, #1
        mov   row, =ROWS
        mov   n, rows
new_state:
        ld    w, row, #8
{new_state}
        add   row, row, #16
        loop  n, @new_state
        li    tail, #0
        mov   region, =AT_CODE_OUT
        mov   beats, =CODE_OUT_BEATS
        call  link, @place
        req   address, beats, #1
        mov   p, =NEW
        mov   n, =CODE_BYTES
new_byte:
        ld    w, p, #3
        mul   w, w, =4, none
        ld    t, p, #2
        or    w, w, t
        mul   w, w, =4, none
        ld    t, p, #1
        or    w, w, t
        mul   w, w, =4, none
        ld    t, p, #0
        or    w, w, t
        out   w, #0
        add   p, p, #4
        loop  n, @new_byte
        jmp   @tile_done
"""


def source(params):
    """The text, for this width of state."""
    wide = params.state_bits == 16
    return _SOURCE.format(old_state=_OLD_STATE_16 if wide else _OLD_STATE_8,
                          new_state=_NEW_STATE_16 if wide else _NEW_STATE_8)
