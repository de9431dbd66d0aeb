"""Program, last part: the end of a query tile, its rows' state and its output."""

__all__ = ["SOURCE"]

SOURCE = """
finish:
        phase #STORE
        mov   tail, tail_q
        mov   region, =AT_ROWS_OUT
        mov   beats, =ROWS_OUT_BEATS
        call  link, @place
        req   address, beats, #1
        mov   row, =ROWS
        mov   n, rows
new_row:
        mov   s, =NONE
        ld    v, row, #1
        beq   v, =0, @no_row_mass
        ld    top, row, #0
        call  link, @log2
        sub   log, log, =ONE_LOG
        add   s, top, log
        max   s, s, =NONE+1
        min   s, s, =LARGEST
no_row_mass:
        out   s, #1
        ld    w, row, #6
        out   w, #1
        add   row, row, #16
        loop  n, @new_row

        mov   region, =AT_O
        mov   beats, =O_BEATS
        call  link, @place
        req   address, beats, #1
        mov   row, =ROWS
        mov   o_at, =O
        mov   n, rows
o_row:
        phase #O_OUTPUT
        li    t, #D
        ld    w, row, #3
        beq   w, =0, @o_nothing
        ld    v, row, #1
        beq   v, =0, @o_nothing
        call  link, @log2_fine
        sub   u, log, =ONE_LOG_FINE     ; O * 2**-u is the output
        ld    w, row, #0
        mul   w, w, =16, none
        add   u, u, w
        ld    w, row, #2
        sub   u, u, w
        add   u, u, =LOG_QMAX2
        mul   w, o_shift, =4096, none
        sub   u, u, w
        call  link2, @exp2_fine
        add   places, places, #15
        max   places, places, #1
        min   places, places, #62
        shr   places
        phase #STORE+O_OUTPUT
        mov   p, o_at
o_value:
        ld    w, p, #0
        add   p, p, #1
        muls  w, w, f, round
        max   w, w, =-LARGEST
        out   w, #1
        loop  t, @o_value
        jmp   @o_next
o_nothing:
        out   =0, #1
        loop  t, @o_nothing
o_next:
        add   o_at, o_at, =O_ROW
        add   row, row, #16
        loop  n, @o_row
        jmp   @finished
"""
