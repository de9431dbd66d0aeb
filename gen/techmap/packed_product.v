// Patterns for `extract`: rtl.apt.mul6x2.PackedProduct for each width of a segment that fits a
// multiplier of 18 x 18. They become cells of the pattern's name.

`define PACKED_PRODUCT(NAME, BITS) \
module NAME (clk, a, b, p); \
  input clk; \
  input signed [3*BITS-1:0] a; \
  input signed [BITS-1:0] b; \
  output reg signed [4*BITS-1:0] p; \
  reg signed [3*BITS-1:0] a_reg; \
  reg signed [BITS-1:0] b_reg; \
  always @(posedge clk) a_reg <= a; \
  always @(posedge clk) b_reg <= b; \
  always @(posedge clk) p <= a_reg * b_reg; \
endmodule

`PACKED_PRODUCT(PACKED_PRODUCT_3, 3)
`PACKED_PRODUCT(PACKED_PRODUCT_4, 4)
`PACKED_PRODUCT(PACKED_PRODUCT_5, 5)
`PACKED_PRODUCT(PACKED_PRODUCT_6, 6)
