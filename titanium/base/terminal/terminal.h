// What the user wants to see on a terminal.
#pragma once

namespace titanium {

// False where NO_COLOR is set and not empty (https://no-color.org).
bool colors_are_wanted();

// Whether progress is shown. It is until the program is told --quiet.
bool progress_is_wanted();
void silence_progress();

}  // namespace titanium
