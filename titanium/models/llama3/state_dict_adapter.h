// Names of Llama's weights at Hugging Face.
#pragma once

#include <string>

namespace titanium::models::llama3 {

// "layers.3.attention.wq.weight" -> "model.layers.3.self_attn.q_proj.weight".
std::string hugging_face_name(const std::string& fqn);

}  // namespace titanium::models::llama3
