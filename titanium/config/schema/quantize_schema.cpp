#include "titanium/config/schema/quantize_schema.h"

namespace titanium::config {
namespace {

void declare_quantize_linear(Section<QuantizedLinear> linear) {
  auto float8 = linear.section("float8", &QuantizedLinear::float8, "Linear layers in float8.");
  float8.option("enable_fsdp_float8_all_gather", &Float8Linear::enable_fsdp_float8_all_gather,
                "FSDP gathers weights in float8 (tensorwise scales only).");
  float8.option("precompute_float8_dynamic_scale_for_fsdp", &Float8Linear::precompute_float8_dynamic_scale_for_fsdp,
                "Compute all weight scales with one collective after the optimizer.");
  float8.option("recipe_name", &Float8Linear::recipe_name, "How scales are chosen. None: tensorwise.")
      .one_of({"tensorwise", "rowwise", "rowwise_with_gw_hp"});
  float8.option("filter_fqns", &Float8Linear::filter_fqns,
                "Parts of names of layers to leave alone; auto_filter_small_kn leaves those too small to gain.");
  float8.option("emulate", &Float8Linear::emulate,
                "Round to float8 and compute in float32: for the CPU and for GPUs without float8.");
  auto mx = linear.section("mx", &QuantizedLinear::mx, "Linear layers in MXFP8.");
  mx.option("mxfp8_dim1_cast_kernel_choice", &MxLinear::mxfp8_dim1_cast_kernel_choice,
            "Kernel of the column-wise cast.")
      .one_of({"triton", "cuda", "torch"});
  mx.option("recipe_name", &MxLinear::recipe_name, "How scales are rounded.")
      .one_of({"mxfp8_cublas", "mxfp8_cublas_rceil", "mxfp8_emulated"});
  mx.option("filter_fqns", &MxLinear::filter_fqns, "Parts of names of layers to leave alone.");
}

void declare_quantize_grouped(Section<QuantizedGroupedMm> grouped) {
  auto float8 = grouped.section("float8", &QuantizedGroupedMm::float8, "Experts in float8.");
  float8.option("fqns", &Float8GroupedMm::fqns, "Parts of names of modules whose grouped products change.");
  float8.option("emulate", &Float8GroupedMm::emulate, "Round to float8 and compute in float32, on any device.").own();
  auto mx = grouped.section("mx", &QuantizedGroupedMm::mx, "Experts in MXFP8.");
  mx.option("recipe_name", &MxGroupedMm::recipe_name, "How scales are chosen.").one_of({"mxfp8"});
  mx.option("fqns", &MxGroupedMm::fqns, "Parts of names of modules whose grouped products change.");
  mx.option("emulate", &MxGroupedMm::emulate, "Round to MXFP8 and compute in float32, on any device.").own();
}

}  // namespace

void declare_quantize(Schema& schema) {
  Section<Quantize> quantize(schema, "quantize", "Settings of the converters in model.converters.",
                             &JobConfig::quantize);
  declare_quantize_linear(quantize.section("linear", &Quantize::linear, "Linear layers."));
  declare_quantize_grouped(quantize.section("grouped_mm", &Quantize::grouped_mm, "Grouped products of experts."));
}

}  // namespace titanium::config
