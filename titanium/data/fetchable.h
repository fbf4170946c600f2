// What a run needs and what is not on this machine: what it reads from the hub itself, and what `titanium download`
// brings. A configuration that lacks only the latter is right; `titanium train` refuses it all the same until they are
// here.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace titanium::data {

// Who owns the repository of a model at the hub, such as "meta-llama" for "Llama-3.1-8B"; "" if that is not known.
using OwnerOfModel = std::function<std::string(const std::string& model)>;
// The sentences below name commands with the owners that this finds; without it, and for owners that it does not know,
// they say OWNER. To be handed in once, before threads begin.
void know_owners(OwnerOfModel owner_of);

// Why the tokenizer folder `path`, which does not exist, cannot be read. For a folder of the place where `titanium
// download --assets` puts models (assets/hf/NAME) with the command that makes it.
std::string missing_tokenizer_sentence(const std::filesystem::path& path);

// Where the hub has the data set `name` (upper or lower case), if a run can read it there: the address of its files.
std::optional<std::string> hub_address(const std::string& name);

// What follows a sentence that says why `address` cannot be read: where it is one of hub_address, the command that
// fetches the data set; empty for others.
std::string other_way_to_get(const std::string& address);

// Why the data set `name`, which the registry knows and which has files neither here nor at a hub_address, cannot be
// read, with the command that fetches it.
std::string missing_dataset_sentence(const std::string& name);

// Why the data path `path`, which does not exist, cannot be read: where its last part is the name of a data set that
// the hub has, with the command that fetches it.
std::string missing_data_sentence(const std::filesystem::path& path);

// The command that fetches one more file of the model whose folder assets/hf/NAME this is.
std::string download_of_file(const std::filesystem::path& file);

// Whether a sentence is of these kinds and names the command that mends it.
bool names_download(std::string_view sentence);

}  // namespace titanium::data
