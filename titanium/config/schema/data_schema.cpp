#include "titanium/config/schema/data_schema.h"

namespace titanium::config {

void declare_sources(Section<Training>& training) {
  training
      .option(
          "sources", &Training::sources,
          "Data sets to mix instead of training.dataset, as tables [[training.sources]] with name, path or dataset, "
          "weight, weight_schedule, text_field, epochs and when_exhausted. On the command line as JSON.")
      .own();
  training
      .option("source_temperature", &Training::source_temperature,
              "Sources without a weight get one from their size in bytes: size ^ (1 / temperature). None: all sources "
              "need a weight.")
      .above(0)
      .own();
  training.option("token_dtype", &Training::token_dtype, "Type of the tokens in raw arrays, which do not say it.")
      .one_of({"uint16", "uint32", "int32", "int64"})
      .own();
  training
      .option("data_striping", &Training::data_striping,
              "How records are dealt to data streams. blocks: whole blocks (row groups, ranges of lines, documents "
              "of an index, files), so that a rank skips what is not its own. records: one by one, as runs before "
              "this option. auto: blocks where there is enough data; a saved run goes on as it began.")
      .one_of({"auto", "blocks", "records"})
      .own();
  training
      .option("data_lanes", &Training::data_lanes,
              "The most lanes that blocks are dealt into, of all sources together; up to as many ranks read nothing "
              "twice. A rank keeps a reader open for each of its lanes.")
      .between(1, int64_t{1} << 20)
      .own();
  training
      .option("shuffle", &Training::shuffle,
              "Read the records of each source in another order in every epoch: any order where the files have an "
              "index, else shuffled inside windows.")
      .own();
  training.option("shuffle_seed", &Training::shuffle_seed, "Chooses the orders of training.shuffle.").own();
  training.option("shuffle_window", &Training::shuffle_window, "Records of a window of training.shuffle.")
      .between(2, int64_t{1} << 30)
      .own();
  training
      .option("positions", &Training::positions,
              "Where the positions of tokens begin again at 0: with each sample, or also with each document in it. "
              "What attention may look at is a matter of the model's flavor and not of this option.")
      .one_of({"sequence", "document"})
      .own();
}

void declare_validation_sources(Section<Validation>& validation) {
  validation
      .option("sources", &Validation::sources,
              "Data sets to validate on instead of validation.dataset, each with a loss of its own, as tables "
              "[[validation.sources]] with name, path or dataset, and text_field. On the command line as JSON.")
      .own();
}

}  // namespace titanium::config
