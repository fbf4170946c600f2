// A module for clang-tidy 19: its one check, titanium-scope, finds nothing and lets all other checks walk through our
// own files alone. Without it they walk through the standard library, libtorch and everything else that a file
// includes, and drop what they find there; that is nine tenths of their time. tools/run_clang_tidy.py builds and loads
// it.
#include <clang-tidy/ClangTidyCheck.h>
#include <clang-tidy/ClangTidyModule.h>
#include <clang-tidy/ClangTidyModuleRegistry.h>

#include <vector>

namespace {

using clang::ast_matchers::MatchFinder;

class Scope : public clang::tidy::ClangTidyCheck {
 public:
  using ClangTidyCheck::ClangTidyCheck;

  // The translation unit is matched before its declarations are walked through, so this is early enough.
  void registerMatchers(MatchFinder* finder) override {
    finder->addMatcher(clang::ast_matchers::translationUnitDecl().bind("unit"), this);
  }

  void check(const MatchFinder::MatchResult& result) override {
    const auto* unit = result.Nodes.getNodeAs<clang::TranslationUnitDecl>("unit");
    std::vector<clang::Decl*> own;
    // What a precompiled header declares is not loaded.
    for (clang::Decl* decl : unit->noload_decls()) {
      const clang::SourceLocation place = decl->getLocation();
      if (place.isValid() && !result.SourceManager->isInSystemHeader(place)) own.push_back(decl);
    }
    result.Context->setTraversalScope(own);
  }
};

class Module : public clang::tidy::ClangTidyModule {
 public:
  void addCheckFactories(clang::tidy::ClangTidyCheckFactories& factories) override {
    factories.registerCheck<Scope>("titanium-scope");
  }
};

const clang::tidy::ClangTidyModuleRegistry::Add<Module> kModule("titanium-module",
                                                                "Walks through our own files alone.");

}  // namespace
