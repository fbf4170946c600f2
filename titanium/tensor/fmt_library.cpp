// The code of the fmt that torch brings along, a later version than Debian's, compiled once for all files of layers
// with torch. See titanium/base/fmt_library.cpp.
#include <fmt/format-inl.h>

template auto fmt::detail::dragonbox::to_decimal(float x) noexcept -> decimal_fp<float>;
template auto fmt::detail::dragonbox::to_decimal(double x) noexcept -> decimal_fp<double>;
template fmt::locale_ref::locale_ref(const std::locale& loc);
template std::locale fmt::locale_ref::get<std::locale>() const;
template auto fmt::detail::thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto fmt::detail::decimal_point_impl(locale_ref) -> char;
