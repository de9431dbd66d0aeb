// Packed products in ECP5 multipliers with the block's own registers, which synthesis would leave
// in slices: on the inputs and on the output, all on CLK0, always enabled and never reset.
// Narrow operands are at the top of the inputs, so that no sign is routed to many pins.

(* techmap_celltype = "PACKED_PRODUCT_3 PACKED_PRODUCT_4 PACKED_PRODUCT_5 PACKED_PRODUCT_6" *)
module ecp5_packed_product (clk, a, b, p);
  parameter _TECHMAP_CELLTYPE_ = "PACKED_PRODUCT_6";
  localparam BITS = _TECHMAP_CELLTYPE_[7:0] - "0";

  input clk;
  input [3*BITS-1:0] a;
  input [BITS-1:0] b;
  output [4*BITS-1:0] p;

  wire [17:0] wide_a = {a, {18-3*BITS{1'b0}}};
  wire [17:0] wide_b = {b, {18-BITS{1'b0}}};
  wire [35:0] wide_p;
  assign p = wide_p[35:36-4*BITS];

  MULT18X18D #(
    .REG_INPUTA_CLK("CLK0"), .REG_INPUTA_CE("CE0"), .REG_INPUTA_RST("RST0"),
    .REG_INPUTB_CLK("CLK0"), .REG_INPUTB_CE("CE0"), .REG_INPUTB_RST("RST0"),
    .REG_OUTPUT_CLK("CLK0"), .REG_OUTPUT_CE("CE0"), .REG_OUTPUT_RST("RST0"),
    .GSR("DISABLED")
  ) _TECHMAP_REPLACE_ (
    .CLK0(clk), .CE0(1'b1), .RST0(1'b0),
    .SIGNEDA(1'b1), .SIGNEDB(1'b1), .SOURCEA(1'b0), .SOURCEB(1'b0),
    .A0(wide_a[0]), .A1(wide_a[1]), .A2(wide_a[2]), .A3(wide_a[3]), .A4(wide_a[4]),
    .A5(wide_a[5]), .A6(wide_a[6]), .A7(wide_a[7]), .A8(wide_a[8]), .A9(wide_a[9]),
    .A10(wide_a[10]), .A11(wide_a[11]), .A12(wide_a[12]), .A13(wide_a[13]), .A14(wide_a[14]),
    .A15(wide_a[15]), .A16(wide_a[16]), .A17(wide_a[17]),
    .B0(wide_b[0]), .B1(wide_b[1]), .B2(wide_b[2]), .B3(wide_b[3]), .B4(wide_b[4]),
    .B5(wide_b[5]), .B6(wide_b[6]), .B7(wide_b[7]), .B8(wide_b[8]), .B9(wide_b[9]),
    .B10(wide_b[10]), .B11(wide_b[11]), .B12(wide_b[12]), .B13(wide_b[13]), .B14(wide_b[14]),
    .B15(wide_b[15]), .B16(wide_b[16]), .B17(wide_b[17]),
    .P0(wide_p[0]), .P1(wide_p[1]), .P2(wide_p[2]), .P3(wide_p[3]), .P4(wide_p[4]),
    .P5(wide_p[5]), .P6(wide_p[6]), .P7(wide_p[7]), .P8(wide_p[8]), .P9(wide_p[9]),
    .P10(wide_p[10]), .P11(wide_p[11]), .P12(wide_p[12]), .P13(wide_p[13]), .P14(wide_p[14]),
    .P15(wide_p[15]), .P16(wide_p[16]), .P17(wide_p[17]), .P18(wide_p[18]), .P19(wide_p[19]),
    .P20(wide_p[20]), .P21(wide_p[21]), .P22(wide_p[22]), .P23(wide_p[23]), .P24(wide_p[24]),
    .P25(wide_p[25]), .P26(wide_p[26]), .P27(wide_p[27]), .P28(wide_p[28]), .P29(wide_p[29]),
    .P30(wide_p[30]), .P31(wide_p[31]), .P32(wide_p[32]), .P33(wide_p[33]), .P34(wide_p[34]),
    .P35(wide_p[35])
  );
endmodule
