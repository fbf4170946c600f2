// The code of Debian's fmt, compiled once for all files of layers without torch. Debian has it as a shared library
// only, which the program would then need on every machine; the headers bring the same source. Below are the instances
// of templates that only this source can make.
#include <fmt/format-inl.h>

template auto fmt::detail::dragonbox::to_decimal(float x) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double x) noexcept -> decimal_fp<double>;
template fmt::detail::locale_ref::locale_ref(const std::locale& loc);
template std::locale fmt::detail::locale_ref::get<std::locale>() const;
template auto fmt::detail::thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl(locale_ref) -> char;
