// Names and layout of Llama's weights at Hugging Face.
#pragma once

#include <string>

#include "titanium/tensor/tensor.h"

namespace titanium::models::llama3 {

// "layers.3.attention.wq.weight" -> "model.layers.3.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& fqn);

// Hugging Face rotates the halves of a head, we rotate adjacent pairs: rows of wq and wk [heads * head_dim, dim] are
// permuted inside each head. Both directions; everything else is the same.
Tensor rows_from_hugging_face(const Tensor& weight, int64_t heads);
Tensor rows_to_hugging_face(const Tensor& weight, int64_t heads);

}  // namespace titanium::models::llama3
