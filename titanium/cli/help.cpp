#include "titanium/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>
#include <vector>

#include "titanium/config/schema/schema.h"

namespace titanium::cli {
namespace {

constexpr size_t kColumns = 100;

// Command with its subcommand, and a line that can be tried; those of the table below are the last lines of each help.
constexpr std::pair<std::string_view, std::string_view> kExamples[] = {
    {"init", "titanium init --model llama3 --flavor 8B --gpus 8 --gpu-memory 80 --out run.toml"},
    {"download", "titanium download --repo_id meta-llama/Llama-3.1-8B --assets tokenizer config"},
    {"tokenizer", "titanium tokenizer train --input texts.jsonl --vocab-size 32000 --out my_tokenizer"},
    {"tokenize", "titanium tokenize --tokenizer tests/assets/tokenizer < text.txt > ids.jsonl"},
    {"data", "titanium data prepare texts/ --tokenizer my_tokenizer --out tokens"},
    {"data inspect", "titanium data inspect texts/ --json"},
    {"data plan", "titanium data plan --job.config_file run.toml"},
    {"data prepare-images", "titanium data prepare-images --job.config_file run.toml --out encodings"},
    {"config", "titanium config check run.toml --ranks 8 --gpu H100"},
    {"estimate", "titanium estimate --job.config_file configs/llama3/llama3_8b.toml --ranks 8 --device-gib 80"},
    {"schedule", "titanium schedule show --schedule 1F1B --pp 4 --microbatches 8"},
    {"doctor", "titanium doctor --job.config_file run.toml"},
    {"tune", "titanium tune --job.config_file run.toml"},
    {"train", "titanium train --job.config_file configs/llama3/debug_model_cpu.toml --training.steps 20"},
    {"launch", "titanium launch --nproc-per-node 8 -- train --job.config_file run.toml"},
    {"watch", "titanium watch outputs --text"},
    {"report", "titanium report outputs --out report.html"},
    {"flight", "titanium flight analyze outputs/comm_traces"},
    {"generate", "titanium generate --checkpoint outputs/checkpoint/step-1000 --prompt \"Once upon a time\""},
    {"eval", "titanium eval --checkpoint outputs/checkpoint/step-1000 --text documents.jsonl"},
    {"convert", "titanium convert outputs/checkpoint/step-1000 weights --to hf"},
    {"inspect", "titanium inspect outputs/checkpoint/step-1000 --stats"},
    {"generate-image", "titanium generate-image --job.config_file run.toml --checkpoint outputs/checkpoint/step-10"},
    {"checkpoint list", "titanium checkpoint list outputs/checkpoint"},
    {"checkpoint", "titanium checkpoint verify outputs/checkpoint/step-1000"},
    {"completion", "source <(titanium completion bash)"},
    {"man", "titanium man > titanium.1 && man ./titanium.1"},
};

// What most runs set, by what it is for.
constexpr std::pair<std::string_view, std::string_view> kCommonOptions[] = {
    {"Model", "model.name model.flavor model.hf_assets_path model.converters"},
    {"Data and length",
     "training.dataset training.dataset_path training.seq_len training.local_batch_size training.steps"},
    {"Optimizer", "optimizer.name optimizer.lr lr_scheduler.warmup_steps"},
    {"Ranks",
     "parallelism.data_parallel_shard_degree parallelism.tensor_parallel_degree "
     "parallelism.pipeline_parallel_degree parallelism.context_parallel_degree"},
    {"Memory", "activation_checkpoint.mode training.dtype"},
    {"Results", "job.dump_folder metrics.log_freq checkpoint.enable checkpoint.interval validation.enable"},
};

std::string current_command;       // "data prepare"
std::string_view more_usage;       // of that command, behind what its own options are
std::string* collected = nullptr;  // where help goes instead of stdout

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Where the text of a line begins that has a name, a gap and a text; else where the line begins.
size_t hanging_indent(const std::string& line) {
  const size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const size_t gap = line.find("  ", begin);
  const size_t text = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
  return begin > 0 && text != std::string::npos && text < 60 ? text : begin;
}

std::string wrapped(const std::string& line) {
  if (line.size() <= kColumns) return line + "\n";
  const size_t indent = hanging_indent(line);
  const size_t cut = line.rfind(' ', kColumns);
  if (cut == std::string::npos || cut <= indent) return line + "\n";
  return line.substr(0, cut) + "\n" + wrapped(std::string(indent, ' ') + line.substr(cut + 1));
}

std::string example_of(const std::string& command) {
  for (const std::string& name : {command, command.substr(0, command.find(' '))}) {
    for (const auto& [path, line] : kExamples) {
      if (path == name) return std::string(line);
    }
  }
  return "";
}

std::string first_sentence(const std::string& text) {
  const size_t end = text.find(". ");
  std::string sentence = end == std::string::npos ? text : text.substr(0, end);
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

}  // namespace

std::string program_help() {
  std::string text = "Titanium pre-trains large generative models.\n\nUsage: titanium <command> [arguments]\n";
  std::string_view group;
  for (const Command& command : commands()) {
    if (command.group != group) text += fmt::format("\n{}\n", group = command.group);
    text += fmt::format("  {:<16}{}\n", command.name, command.summary);
  }
  return text +
         "\ntitanium <command> --help explains a command; titanium --version names the libraries in use.\n"
         "With --quiet a command shows no progress; with NO_COLOR set nothing is coloured.\n\n"
         "Example: titanium train --job.config_file configs/llama3/debug_model_cpu.toml\n";
}

std::string train_help() {
  std::string text =
      "Trains the model of the configuration: defaults, then the file, then the command line.\n"
      "Usage: titanium train [--job.config_file FILE] [--section.key value ...]\n";
  for (const auto& [group, names] : kCommonOptions) {
    text += fmt::format("\n{}:\n", group);
    for (const std::string& name : words_of(names)) {
      text += fmt::format("  {:<42}{}\n", "--" + name, first_sentence(config::schema().at(name).meaning()));
    }
  }
  return text +
         fmt::format("\ntitanium config options explains all {} options; docs/options.md has the same as a page.\n",
                     config::schema().options().size());
}

void set_help_command(const std::string& name, const Command& command, Arguments args) {
  current_command = name;
  const std::vector<std::string> known = words_of(command.subcommands);
  if (!args.empty() && std::ranges::find(known, args[0]) != known.end()) current_command += " " + args[0];
  more_usage = name == "launch" ? " -- COMMAND ..." : "";
  if (takes_run_options(current_command) && more_usage.empty()) more_usage = " [--section.key value ...]";
}

void show_help(const std::string& text) {
  std::istringstream lines(text);
  std::string help, paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) help += wrapped(std::exchange(paragraph, ""));
  };
  for (std::string line; std::getline(lines, line);) {
    const bool is_prose = !line.empty() && line[0] != ' ' && !line.starts_with("Usage:") && !line.ends_with(':');
    if (is_prose) {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      continue;
    }
    end_paragraph();
    if (line.starts_with("Usage: ")) {
      if (!line.starts_with("Usage: titanium")) line.insert(7, "titanium ");
      if (line.find("--section.key") == std::string::npos) line += more_usage;
    }
    help += wrapped(line);
  }
  end_paragraph();
  while (help.ends_with("\n\n")) help.pop_back();
  help += fmt::format("\nExample: {}\n", example_of(current_command));
  if (collected != nullptr) {
    *collected = help;
  } else {
    std::fputs(help.c_str(), stdout);
  }
}

std::string help_of(const Command& command, const std::string& subcommand) {
  std::vector<std::string> args;
  if (!subcommand.empty()) args.push_back(subcommand);
  args.emplace_back("--help");
  const std::string before = current_command;
  std::string text;
  collected = &text;
  set_help_command(std::string(command.name), command, args);
  command.run(args);
  collected = nullptr;
  current_command = before;
  return text;
}

}  // namespace titanium::cli
