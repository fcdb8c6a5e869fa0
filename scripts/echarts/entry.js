// The parts of Apache ECharts that the report draws with; everything else stays out of the file.
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomInsideComponent,
  GridComponent,
  LegendPlainComponent,
  MarkAreaComponent,
  MarkPointComponent,
  ToolboxComponent,
  TooltipComponent,
} from "echarts/components";
import { init, use, version } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  AriaComponent,
  DataZoomInsideComponent,
  GridComponent,
  LegendPlainComponent,
  MarkAreaComponent,
  MarkPointComponent,
  ToolboxComponent,
  TooltipComponent,
  SVGRenderer,
]);

export { init, version };
