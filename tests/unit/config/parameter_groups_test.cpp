#include "titanium/config/parameter_groups.h"

#include "tests/unit/config/config_file.h"

namespace titanium::config {
namespace {

std::string error_of(const std::string& groups) { return toml_error("[optimizer]\nparam_groups = " + groups + "\n"); }

TEST(ParameterGroups, ChangeOptionsOfTheSectionAndTheFirstMatchTakesAParameter) {
  Optimizer section;
  section.beta1 = 0.8;
  section.param_groups = {{"norm|bias", "weight_decay=0"},
                          {"^layers\\.0\\.", "name=Adam", "lr_factor=0.5", "beta1=0.7", "beta2=0.6", "eps=1e-6"}};
  const std::vector<ParameterGroup> groups = parameter_groups(section);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].options.weight_decay, 0);
  EXPECT_EQ(groups[0].options.beta1, 0.8);
  EXPECT_EQ(groups[1].options.weight_decay, 0.1);
  EXPECT_EQ(groups[1].options.name, "Adam");
  EXPECT_EQ(groups[1].options.lr_factor, 0.5);
  EXPECT_EQ(groups[1].options.beta1, 0.7);
  EXPECT_EQ(groups[1].options.beta2, 0.6);
  EXPECT_EQ(groups[1].options.eps, 1e-6);
  EXPECT_EQ(find_group(groups, "layers.0.attention_norm.weight"), &groups[0]);
  EXPECT_EQ(find_group(groups, "layers.0.attention.wq.weight"), &groups[1]);
  EXPECT_EQ(find_group(groups, "layers.1.attention.wq.weight"), nullptr);
}

TEST(ParameterGroups, WhatCannotBeReadIsRefusedWithASentence) {
  EXPECT_EQ(error_of(R"([["norm", "weight_decay=0"]])"), "no error");
  EXPECT_EQ(error_of(R"([[]])"),
            "run.toml:2: optimizer.param_groups has an empty group. Begin each with a pattern, as in [\"norm|bias\", "
            "\"weight_decay=0\"].");
  EXPECT_EQ(error_of(R"([["(norm", "weight_decay=0"]])"),
            "run.toml:2: optimizer.param_groups: \"(norm\" is not a regular expression. Begin a group with one, such "
            "as \"norm|bias\".");
  EXPECT_NE(error_of("[[\"" + std::string(100'000, '(') + "\"]]").find("is not a regular expression"),
            std::string::npos);
  EXPECT_EQ(error_of(R"([["norm", "decay=0"]])"),
            "run.toml:2: optimizer.param_groups: \"decay=0\" must be a setting such as \"weight_decay=0\". There are "
            "name, lr_factor, weight_decay, beta1, beta2, eps, muon.momentum.");
  EXPECT_EQ(error_of(R"([["norm", "weight_decay"]])"),
            "run.toml:2: optimizer.param_groups: \"weight_decay\" must be a setting such as \"weight_decay=0\". There "
            "are name, lr_factor, weight_decay, beta1, beta2, eps, muon.momentum.");
  EXPECT_EQ(error_of(R"([["norm", "beta1=1"]])"),
            "run.toml:2: optimizer.param_groups: \"beta1=1\": beta1 must be a number, at least 0 and below 1.");
  EXPECT_EQ(error_of(R"([["norm", "lr_factor=half"]])"),
            "run.toml:2: optimizer.param_groups: \"lr_factor=half\": lr_factor must be a number, at least 0.");
  EXPECT_EQ(error_of(R"([["norm", "name=SGD"]])"),
            "run.toml:2: optimizer.param_groups: \"name=SGD\": name must be \"Adam\", \"AdamW\" or \"Muon\".");
}

}  // namespace
}  // namespace titanium::config
