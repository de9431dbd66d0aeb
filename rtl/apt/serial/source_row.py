"""Program, third part: a row of a tile, from its logits to its O."""

__all__ = ["SOURCE"]


def _four(text):
    return "".join(text.replace("#k", f"#{k}") for k in range(4))


SOURCE = f"""
; ---- Logits of the blocks that are computed, and their maximum.
row_begin:
        phase #QK
        mov   z_end, =Z
        sett  =NO_LOGIT
        mov   p, =BLOCKS
        beq   p, blocks_end, @qk_done
        setr  r
        shr   z_shift
        setn  =D
        add   q_low, q_at, =D
qk_block:
        ld    kind, p, #0
        ld    left_keys, p, #1          ; from the block's first key on
        ld    k_at, p, #2
        add   p, p, #5
        li    step, #2                  ; four keys each
        sub   left_keys, keys, left_keys
qk_step:
        bne   kind, =1, @qk_high
        mac   k_at, q_at, first last
        ashl
        ashl
        jmp   @qk_sums
qk_high:
        add   k_low, k_at, =K_LSB
        mac   k_at, q_at, first
        mac   k_low, q_at, shift
        mac   k_at, q_low, add
        mac   k_low, q_low, shift last
qk_sums:
        blt   left_keys, =4, @qk_tail
        deq   z_end, mantissa, #3
        add   z_end, z_end, #4
        add   left_keys, left_keys, #-4
        beq   left_keys, =0, @qk_next
        add   k_at, k_at, =D
        loop  step, @qk_step
qk_next:
        bne   p, blocks_end, @qk_block
        jmp   @qk_done
qk_tail:                                ; one to three keys end the tile
        beq   left_keys, =1, @qk_tail_1
        beq   left_keys, =2, @qk_tail_2
        deq   z_end, mantissa, #2
        jmp   @qk_tail_done
qk_tail_1:
        deq   z_end, mantissa, #0
        jmp   @qk_tail_done
qk_tail_2:
        deq   z_end, mantissa, #1
qk_tail_done:
        add   z_end, z_end, left_keys

; ---- P' in their place, and the row's sum.
qk_done:
        phase #SOFTMAX
        rdt   top
        li    total, #0
        sub   n, z_end, =Z
        beq   n, =0, @summed
        mov   p, =Z
        exp   total, p, n
summed:

; ---- State of the row, thresholds.
        mov   s, =NONE
        beq   total, =0, @no_mass
        mov   v, total
        call  link, @log2
        sub   log, log, =ONE_LOG
        add   s, top, log
        max   s, s, =NONE+1
        min   s, s, =LARGEST
        ld    w, row, #6
        bne   w, =NONE, @no_mass
        st    row, #6, s                ; the row's first
no_mass:
        st    row, #8, s
        li    prune, #1
        li    quant, #1
        beq   has_state, =0, @thresholds
        mov   prune, =NEVER
        mov   quant, =NEVER
        beq   total, =0, @merged
        ld    w, row, #4
        beq   w, =NONE, @thresholds
        ld    t, row, #7
        beq   t, =NONE, @thresholds
        add   log, log, w
        sub   log, log, t
        sub   u, code_prune, log
        call  link, @theta
        mov   prune, w
        sub   u, code_quant, log
        call  link, @theta
        mov   quant, w
thresholds:

; ---- M and L.
        beq   total, =0, @merged
        ld    mass, row, #1
        beq   mass, =0, @first_sum
        ld    t, row, #0
        sub   difference, top, t
        mul   difference, difference, =16, none
        call  link, @factor
        blt   =0, difference, @rescale_sum
        mul   w, total, f, q15
        add   mass, mass, w
        st    row, #1, mass
        jmp   @merged
rescale_sum:
        mulu  w, mass, f, q15
        add   mass, total, w
        st    row, #0, top
        st    row, #1, mass
        jmp   @merged
first_sum:
        st    row, #0, top
        st    row, #1, total
merged:

; ---- Lists: high precision from the middle down, low precision from it up.
        phase #LISTS
        beq   z_end, =Z, @row_done
        thr   prune, quant
        setl  =LISTS_MIDDLE, =Z
        mov   from, =BLOCKS
list_block:
        ld    w, from, #1
        ld    v_at, from, #3
        sub   n, keys, w
        min   n, n, #8
        beq   dense, =0, @list_sparse
        list  w, v_at, n, #1
        jmp   @list_next
list_sparse:
        list  w, v_at, n, #0
list_next:
        ld    count, from, #4
        add   from, from, #5
        ld    t, count, #0
        add   t, t, w
        st    count, #0, t
        bne   from, blocks_end, @list_block
        rdl   valid, #0
        rdl   high_end, #1
        sub   valid, valid, high_end
        sub   high, =LISTS_MIDDLE, high_end
        eve   valid, high
        beq   valid, =0, @row_done

; ---- Units: the larger one is the row's, the other side is scaled.
        mul   unit, top, =16, none
        add   unit, unit, unit_v
        ld    w, row, #3
        bne   w, =0, @not_first
        st    row, #2, unit
        st    row, #3, =1
        li    side, #0
        jmp   @pv
not_first:
        ld    w, row, #2
        sub   difference, unit, w
        call  link, @factor
        li    side, #1                  ; the tile's sums are scaled
        bge   =0, difference, @pv
        li    side, #2                  ; O is
        st    row, #2, unit

; ---- PV, four columns at a time.
pv:
        phase #PV
        shr   o_shift
        mov   v_at, =V
        mov   p, o_at
        mov   n, =PASSES
pv_pass:
        setn  valid
        bne   high, =0, @pv_high
        mac   v_at, high_end, pv first last
        ashl
        ashl
        jmp   @pv_sums
pv_high:
        add   v_low, v_at, =PASSES
        mac   v_at, high_end, pv first
        setn  high
        mac   v_low, high_end, pv shift
        mac   v_at, high_end, pv lsb
        mac   v_low, high_end, pv lsb shift last
pv_sums:
        bne   side, =1, @pv_other
        oup   p, f
        add   p, p, #4
        add   v_at, v_at, #1
        loop  n, @pv_pass
        jmp   @row_done
pv_other:
        beq   side, =2, @scale_o
{_four('''
        mula  t, #k, =1, round
        stp   p, t
''')}
        jmp   @pv_next
scale_o:
{_four('''
        mula  t, #k, =1, round
        ld    w, p, #0
        mul   w, w, f, q15
        add   t, t, w
        stp   p, t
''')}
pv_next:
        add   v_at, v_at, #1
        loop  n, @pv_pass
        jmp   @row_done

; ---- w: threshold of code u.
theta:
        mov   w, =NEVER
        blt   u, =0, @theta_done
        shx   u
        tab   w, u, exp
        mul   w, w, =1, round
        max   w, w, #1
theta_done:
        jr    link
"""
