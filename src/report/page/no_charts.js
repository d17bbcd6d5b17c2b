// Stands where the chart library would: the build found none (see cmake/chart_library.cmake).
