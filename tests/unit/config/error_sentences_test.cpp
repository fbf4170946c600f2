// Each way of getting a configuration wrong has its sentence.
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/support/without_privileges.h"
#include "tests/unit/config/config_file.h"

namespace titanium::config {
namespace {

TEST(FileErrors, MissingFile) {
  EXPECT_EQ(cli_error({"--job.config_file", "/no/such/run.toml"}),
            "configuration file /no/such/run.toml does not exist. Check the path.");
}

TEST(FileErrors, DirectoryInsteadOfFile) {
  EXPECT_EQ(cli_error({"--job.config_file", "/tmp"}), "configuration file /tmp is a directory. Name a file inside it.");
}

TEST(FileErrors, UnreadableFile) {
  // A socket is there, is no directory and cannot be opened, by root neither.
  const std::filesystem::path path = test_folder() / "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(cli_error({"--job.config_file", path.string()}),
            "configuration file socket cannot be read: No such device or address. Check its permissions.");
  ::close(socket);
}

TEST(FileErrors, FileWithoutPermission) {
  const std::string path = write_config("[training]\n");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const test::WithoutPrivileges any_user;
  EXPECT_EQ(cli_error({"--job.config_file", path}),
            "configuration file run.toml cannot be read: Permission denied. Check its permissions.");
}

TEST(FileErrors, NotUtf8) {
  EXPECT_EQ(toml_error("[job]\ndescription = \"caf\xe9\"\n"),
            "run.toml:2: not UTF-8 (byte 0xe9). Save the file as UTF-8.");
  EXPECT_EQ(toml_error("\xff\xfe[\0j\0"), "run.toml:1: not UTF-8 (byte 0xff). Save the file as UTF-8.");
  EXPECT_EQ(toml_error("[job]\ndescription = \"\xed\xa0\x80\""),
            "run.toml:2: not UTF-8 (byte 0xed). Save the file as UTF-8.");
}

TEST(FileErrors, DuplicateKey) {
  EXPECT_EQ(toml_error("[training]\nsteps = 1\nseq_len = 2\nsteps = 3\n"),
            "run.toml:4: 'steps' is given twice. Remove one of the two.");
}

TEST(FileErrors, DuplicateSection) {
  EXPECT_EQ(toml_error("[training]\nsteps = 1\n[job]\n[training]\nseq_len = 3\n"),
            "run.toml:4: 'training' is given twice. Remove one of the two.");
}

TEST(FileErrors, NotToml) {
  const std::string message = toml_error("[training]\nsteps 5\n");
  EXPECT_TRUE(message.starts_with("run.toml:2: not valid TOML: ")) << message;
}

TEST(TomlErrors, UnknownSection) {
  EXPECT_EQ(toml_error("\n[trainning]\nsteps = 5\nseq_len = 3\n"),
            "run.toml:2: there is no section [trainning]. Did you mean [training]?");
  EXPECT_EQ(toml_error("[something_else]\nsteps = 5\n"),
            "run.toml:1: there is no section [something_else]. `titanium config options` lists all sections.");
}

TEST(TomlErrors, UnknownKey) {
  EXPECT_EQ(toml_error("[training]\nseqlen = 2048\n"),
            "run.toml:2: training.seqlen = 2048: there is no option training.seqlen. Did you mean training.seq_len?");
  EXPECT_EQ(toml_error("[training]\nlr = 1e-3\n"),
            "run.toml:2: training.lr = 0.001: there is no option training.lr. Did you mean optimizer.lr?");
  EXPECT_EQ(toml_error("[quantize.linear.float8]\nfiltr_fqns = ['output']\n"),
            "run.toml:2: quantize.linear.float8.filtr_fqns = [\"output\"]: there is no option "
            "quantize.linear.float8.filtr_fqns. Did you mean quantize.linear.float8.filter_fqns?");
  EXPECT_EQ(toml_error("[job]\nunheard_of_setting = 1979-05-27\n"),
            "run.toml:2: job.unheard_of_setting = 1979-05-27: there is no option "
            "job.unheard_of_setting. `titanium config options` lists all options.");
}

TEST(TomlErrors, SectionAndOptionConfused) {
  EXPECT_EQ(toml_error("training = 5\n"),
            "run.toml:1: training = 5: training is a section. Write its options below [training].");
  EXPECT_EQ(toml_error("[training.steps]\na = 1\n"),
            "run.toml:1: training.steps is an option, not a section. Write steps = ... below [training].");
}

TEST(TomlErrors, WrongType) {
  EXPECT_EQ(toml_error("[training]\nsteps = \"many\"\n"),
            "run.toml:2: training.steps = \"many\" must be an integer, at least 1.");
  EXPECT_EQ(toml_error("[training]\nsteps = 2.5\n"),
            "run.toml:2: training.steps = 2.5 must be an integer, at least 1.");
  EXPECT_EQ(toml_error("[training]\nsteps = true\n"),
            "run.toml:2: training.steps = true must be an integer, at least 1.");
  EXPECT_EQ(toml_error("[compile]\nenable = 1\n"), "run.toml:2: compile.enable = 1 must be true or false.");
  EXPECT_EQ(toml_error("[optimizer]\nlr = \"3e-4\"\n"),
            "run.toml:2: optimizer.lr = \"3e-4\" must be a number, at least 0.");
  EXPECT_EQ(toml_error("[optimizer]\nlr = nan\n"), "run.toml:2: optimizer.lr = nan must be a number, at least 0.");
  EXPECT_EQ(toml_error("[job]\ndescription = 5\n"), "run.toml:2: job.description = 5 must be a text.");
  EXPECT_EQ(toml_error("[quantize.linear.float8]\nfilter_fqns = [1, 'a']\n"),
            "run.toml:2: quantize.linear.float8.filter_fqns = [1, \"a\"] must be a list of texts.");
  EXPECT_EQ(toml_error("[parallelism]\nmodule_fqns_per_model_part = ['a']\n"),
            "run.toml:2: parallelism.module_fqns_per_model_part = [\"a\"] must be a list of lists of texts, or None.");
  EXPECT_EQ(toml_error("[debug]\nseed = 'x'\n"), "run.toml:2: debug.seed = \"x\" must be an integer, or None.");
}

TEST(TomlErrors, OutOfRange) {
  EXPECT_EQ(toml_error("[training]\nsteps = 0\n"), "run.toml:2: training.steps = 0 must be an integer, at least 1.");
  EXPECT_EQ(
      toml_error("[training]\nglobal_batch_size = -2\n"),
      "run.toml:2: training.global_batch_size = -2 must be an integer, at least 1 and at most 1073741824, or -1.");
  EXPECT_EQ(toml_error("[optimizer]\nbeta1 = 1\n"),
            "run.toml:2: optimizer.beta1 = 1 must be a number, at least 0 and below 1.");
  EXPECT_EQ(toml_error("[lr_scheduler]\ndecay_ratio = 1.5\n"),
            "run.toml:2: lr_scheduler.decay_ratio = 1.5 must be a number, at least 0 and at most 1, or None.");
  EXPECT_EQ(toml_error("[training]\nmax_norm = 0\n"),
            "run.toml:2: training.max_norm = 0 must be a number, above 0, or -1.");
  EXPECT_EQ(toml_error("[parallelism]\ntensor_parallel_degree = -1\n"),
            "run.toml:2: parallelism.tensor_parallel_degree = -1 must be an integer, at least 1.");
}

TEST(TomlErrors, NotAnAllowedValue) {
  EXPECT_EQ(
      toml_error("[activation_checkpoint]\nmode = 'selectiv'\n"),
      "run.toml:2: activation_checkpoint.mode = \"selectiv\" must be \"selective\", \"full\", \"memory_budget\" or "
      "\"none\". Did you mean \"selective\"?");
  EXPECT_EQ(toml_error("[parallelism]\ncontext_parallel_load_balancer = ''\n"),
            "run.toml:2: parallelism.context_parallel_load_balancer = \"\" must be \"headtail\" or \"ptrr\", or None.");
  EXPECT_EQ(toml_error("[model]\nconverters = ['quantize.linear.float9']\n"),
            "run.toml:2: model.converters = [\"quantize.linear.float9\"] must be a list of \"quantize.linear.float8\", "
            "\"quantize.grouped_mm.float8\", \"quantize.linear.mx\" or \"quantize.grouped_mm.mx\". Did you mean "
            "\"quantize.linear.float8\"?");
}

TEST(TomlErrors, ExtensionThatIsNotSelected) {
  EXPECT_EQ(toml_error("[training]\nimg_size = 256\n"),
            "run.toml:2: training.img_size belongs to an extension. Set job.custom_config_module = "
            "\"torchtitan.models.flux.job_config\" to use it.");
  EXPECT_EQ(cli_error({"--fault_tolerance.sync_steps", "3"}),
            "command line: fault_tolerance.sync_steps belongs to an extension. Set job.custom_config_module = "
            "\"torchtitan.components.ft.config\" to use it.");
}

TEST(TomlErrors, ExtensionThatDoesNotExist) {
  EXPECT_EQ(toml_error("[job]\ncustom_config_module = 'my.config'\n"),
            "run.toml:2: job.custom_config_module = \"my.config\" is not built in. There are "
            "\"torchtitan.models.flux.job_config\" and \"torchtitan.components.ft.config\".");
}

TEST(CommandLineErrors, UnknownOption) {
  EXPECT_EQ(cli_error({"--training.seqlen", "5"}),
            "command line: there is no option --training.seqlen. Did you mean --training.seq_len?");
  EXPECT_EQ(cli_error({"--compile.no_enabel"}),
            "command line: there is no option --compile.no_enabel. Did you mean --compile.no_enable?");
  EXPECT_EQ(cli_error({"--wholly.different=5"}),
            "command line: there is no option --wholly.different. `titanium config options` lists all options.");
}

TEST(CommandLineErrors, SwitchWithAValue) {
  EXPECT_EQ(cli_error({"--compile.enable=False"}),
            "command line: compile.enable is a switch: write --compile.enable or --compile.no_enable, without =False.");
  EXPECT_EQ(cli_error({"--compile.enable", "true"}),
            "command line: compile.enable is a switch: write --compile.enable or --compile.no_enable, without \"true\" "
            "after it.");
}

TEST(CommandLineErrors, MissingValueAndStrayArgument) {
  EXPECT_EQ(cli_error({"--training.steps"}), "command line: --training.steps needs a value: an integer, at least 1.");
  EXPECT_EQ(cli_error({"--training.steps", "--compile.enable"}),
            "command line: --training.steps needs a value: an integer, at least 1.");
  EXPECT_EQ(cli_error({"train"}),
            "command line: unexpected argument \"train\". Options are written --section.key value.");
}

TEST(CommandLineErrors, WrongTypeAndRange) {
  EXPECT_EQ(cli_error({"--training.steps", "2.5"}),
            "command line: training.steps = 2.5 must be an integer, at least 1.");
  EXPECT_EQ(cli_error({"--training.steps=99999999999999999999"}),
            "command line: training.steps = 1e+20 must be an integer, at least 1.");
  EXPECT_EQ(cli_error({"--training.steps=None"}),
            "command line: training.steps = \"None\" must be an integer, at least 1.");
  EXPECT_EQ(cli_error({"--optimizer.lr=fast"}), "command line: optimizer.lr = \"fast\" must be a number, at least 0.");
  EXPECT_EQ(cli_error({"--training.dtype=float16"}),
            "command line: training.dtype = \"float16\" must be \"bfloat16\" or \"float32\". Did you mean "
            "\"bfloat16\"?");
}

TEST(ErrorList, AllProblemsOfFileAndCommandLineAreReportedAtOnce) {
  EXPECT_EQ(toml_error("[training]\nsteps = 0\nseqlen = 1\n[trainning]\n[checkpoint]\nkeep_latest_k = 1\n",
                       {"--optimizer.lr=fast", "--no.such_option=1"}),
            "run.toml:2: training.steps = 0 must be an integer, at least 1.\n"
            "run.toml:3: training.seqlen = 1: there is no option training.seqlen. Did you mean training.seq_len?\n"
            "run.toml:4: there is no section [trainning]. Did you mean [training]?\n"
            "command line: optimizer.lr = \"fast\" must be a number, at least 0.\n"
            "command line: there is no option --no.such_option. `titanium config options` lists all options.\n"
            "run.toml:6: checkpoint.keep_latest_k = 1 would remove the only whole checkpoint while the next one is "
            "written. Use 2 or more, or 0 to keep all.");
}

TEST(ErrorList, RulesDoNotReportWhatRestsOnARefusedValue) {
  EXPECT_EQ(toml_error("[training]\nseq_len = 'x'\n[parallelism]\ntensor_parallel_degree = 3\n"),
            "run.toml:2: training.seq_len = \"x\" must be an integer, at least 1 and at most 1073741824.");
}

}  // namespace
}  // namespace titanium::config
