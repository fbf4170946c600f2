#include <gtest/gtest.h>

#include <set>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/observe/wandb/wandb_run.h"

namespace titanium::observe {
namespace {

namespace fs = std::filesystem;
using test::test_folder;
using Variables = std::map<std::string, std::string>;

WandbSettings settings_of(const Variables& variables) {
  return read_wandb_settings([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal_of(const Variables& variables) {
  try {
    settings_of(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(WandbSettings, AreTorchtitansAndWandbsVariables) {
  const WandbSettings settings = settings_of({{"WANDB_TEAM", "team"},
                                              {"WANDB_ENTITY", "not this"},
                                              {"WANDB_RUN_NAME", "name"},
                                              {"WANDB_RUN_TAGS", "a,b,,c"},
                                              {"WANDB_NOTES", "notes"},
                                              {"WANDB_RUN_GROUP", "group"},
                                              {"WANDB_RUN_JOB_TYPE", "job"},
                                              {"WANDB_FORK_FROM", "abc?_step=12"}});
  EXPECT_EQ(settings.entity, "team");
  EXPECT_EQ(settings.project, "torchtitan");
  EXPECT_EQ(settings.name, "name");
  EXPECT_EQ(settings.tags, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(settings.notes, "notes");
  EXPECT_EQ(settings.group, "group");
  EXPECT_EQ(settings.job_type, "job");
  ASSERT_TRUE(settings.fork_from);
  EXPECT_EQ(settings.fork_from->run, "abc");
  EXPECT_EQ(settings.fork_from->step, 12);
  EXPECT_TRUE(settings.enabled);
  EXPECT_FALSE(settings_of({{"WANDB_MODE", "disabled"}}).enabled);
}

TEST(WandbSettings, RefusalsNameTheVariable) {
  EXPECT_EQ(refusal_of({{"WANDB_RUN_ID", "a/b"}}),
            "WANDB_RUN_ID = a/b should have at most 128 characters and none of / \\ # ? % :.");
  EXPECT_EQ(refusal_of({{"WANDB_RESUME_FROM", "abc"}}), "WANDB_RESUME_FROM = abc should be RUN_ID?_step=STEP.");
  EXPECT_EQ(refusal_of({{"WANDB_FORK_FROM", "abc?_step=x"}}),
            "WANDB_FORK_FROM = abc?_step=x should be RUN_ID?_step=STEP.");
  EXPECT_EQ(refusal_of({{"WANDB_RESUME_FROM", "a?_step=1"}, {"WANDB_FORK_FROM", "a?_step=1"}}),
            "WANDB_RESUME_FROM and WANDB_FORK_FROM exclude each other. Unset one of them.");
  EXPECT_EQ(refusal_of({{"WANDB_MODE", "airplane"}}), "WANDB_MODE = airplane should be online, offline or disabled.");
}

TEST(WandbRun, AResumedRunKeepsItsIdAndAFreshOneHasAnother) {
  const fs::path folder = test_folder(), id_file = folder / "id";
  const auto id = [&](int64_t resumed_step, const WandbSettings& settings = {}) {
    return WandbRun(folder, settings, "{}", resumed_step, id_file).id();
  };
  const std::string first = id(0);
  EXPECT_EQ(first.size(), 8U);
  EXPECT_EQ(id(10), first);
  EXPECT_EQ(id(20), first);
  const std::string other = id(0);
  EXPECT_NE(other, first);
  EXPECT_EQ(id(0, {.id = "mine"}), "mine");
  EXPECT_EQ(id(10), "mine");
}

TEST(WandbRun, LiesWhereWandbLooksForIt) {
  const fs::path folder = test_folder();
  const WandbRun run(folder / "tb", {.id = "abc"}, "{}", 0, folder / "id");
  EXPECT_EQ(run.folder().parent_path(), folder / "tb" / "wandb");
  EXPECT_TRUE(run.folder().filename().string().starts_with("offline-run-20"));
  EXPECT_TRUE(run.folder().filename().string().ends_with("-abc"));
  EXPECT_TRUE(fs::exists(run.folder() / "run-abc.wandb"));
  const WandbRun elsewhere(folder / "tb", {.id = "abc", .folder = folder / "given"}, "{}", 0, folder / "id");
  EXPECT_EQ(elsewhere.folder().parent_path(), folder / "given" / "wandb");
}

TEST(WandbRun, PartsThatBeginInOneSecondHaveFoldersOfTheirOwn) {
  const fs::path folder = test_folder();
  std::set<fs::path> folders;
  for (int64_t step = 0; step < 5; ++step) {
    const WandbRun run(folder, {.id = "abc"}, "{}", step, folder / "id");
    folders.insert(run.folder());
  }
  EXPECT_EQ(folders.size(), 5U);
}

TEST(WandbRun, ARecordLongerThanABlockIsCutAndWhole) {
  const fs::path folder = test_folder();
  WandbRun run(folder, {.id = "abc"}, "{}", 0, folder / "id");
  const fs::path path = run.folder() / "run-abc.wandb";
  std::vector<Scalar> scalars;
  for (int i = 0; i < 5000; ++i) scalars.push_back({fmt::format("a_rather_long_name_of_a_scalar_{}", i), 1.0 / 3});
  run.write(1, scalars);
  const std::string file = read_file(path, "run");
  ASSERT_GT(file.size(), 3 * 32768U);
  // A walk over the pieces: none crosses a block, and the last one ends with the file.
  size_t at = 7, middles = 0;
  while (at < file.size()) {
    const size_t room = 32768 - at % 32768;
    if (room < 7) {
      at += room;
      continue;
    }
    const size_t length = static_cast<uint8_t>(file[at + 4]) + 256U * static_cast<uint8_t>(file[at + 5]);
    const int type = file[at + 6];
    ASSERT_GE(type, 1);
    ASSERT_LE(type, 4);
    middles += type == 3 ? 1 : 0;
    ASSERT_LE(7 + length, room);
    at += 7 + length;
  }
  EXPECT_EQ(at, file.size());
  EXPECT_GT(middles, 0U);
}

TEST(WandbRun, AFolderThatCannotBeMadeIsAnError) {
  try {
    WandbRun("/proc/no", {.id = "abc"}, "{}", 0, test_folder() / "id");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be made"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Check job.dump_folder or WANDB_DIR."), std::string::npos);
  }
}

}  // namespace
}  // namespace titanium::observe
