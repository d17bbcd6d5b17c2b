# The chart library that pages carry: Chart.js 3 or 4, minified, as Debian's libjs-chart.js installs it. Without one a stub is embedded and
# pages show a chart's numbers in its place.
find_file(HEADROOM_CHART_JS NAMES chart.min.js chart.umd.js NO_DEFAULT_PATH
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist DOC "Minified Chart.js 3 or 4, for the pages of headroom report")
if(HEADROOM_CHART_JS)
  set(chart_library ${HEADROOM_CHART_JS})
  set(chart_licence src/report/page/chart_licence.txt)
else()
  message(STATUS "headroom report: no Chart.js was found (Debian: libjs-chart.js), pages will show numbers in place of charts")
  set(chart_library src/report/page/no_charts.js)
  set(chart_licence src/report/page/no_charts.txt)
endif()

function(headroom_add_page target)
  headroom_embed(${target} src/report/page/page.html page_html)
  headroom_embed(${target} src/report/page/page.css page_css)
  headroom_embed(${target} "src/report/page/words.js;src/report/page/table.js;src/report/page/zoom.js;src/report/page/marks.js;src/report/page/charts.js;src/report/page/page.js"
    page_js)
  headroom_embed(${target} ${chart_library} chart_library)
  headroom_embed(${target} ${chart_licence} chart_library_licence)
endfunction()
