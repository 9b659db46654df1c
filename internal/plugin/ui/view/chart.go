package view

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// Sample is the load of a Queue or WorkerPool at a time. Unknown values are nil.
type Sample struct {
	Time                                  time.Time
	Backlog, InFlight, Arrivals, Finished *float64
	Ready, Busy, Draining                 *float64
}

// NewSample returns the load of an object, or nil for other kinds.
func NewSample(object any, now time.Time) *Sample {
	switch object := object.(type) {
	case *v1alpha1.Queue:
		status := &object.Status
		return &Sample{Time: now, Backlog: float(status.Backlog), InFlight: float(status.InFlight), Arrivals: quantity(status.ArrivalRate), Finished: quantity(status.ServiceRate)}
	case *v1alpha1.WorkerPool:
		status := &object.Status
		return &Sample{Time: now, Backlog: float(status.Backlog), InFlight: float(status.InFlight), Ready: float(&status.Ready), Busy: float(status.Busy), Draining: float(&status.Draining)}
	default:
		return nil
	}
}

func float[N int32 | int64](n *N) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func quantity(q *resource.Quantity) *float64 {
	if q == nil {
		return nil
	}
	return new(q.AsApproximateFloat64())
}

// ChartSeries selects a value of each sample.
type ChartSeries struct {
	Name  string
	Value func(*Sample) *float64
}

// Line is a series as the path of an SVG, in a box of ChartWidth by ChartHeight.
type Line struct {
	Name, Path, Last string
}

// Chart shows values over time.
type Chart struct {
	Title      string
	Lines      []Line
	Max        string
	Begin, End time.Time
	// Text describes the chart for people who cannot see it.
	Text string
}

// Since is when the chart begins, in UTC: the time, with the date if it covers more than a day.
func (c *Chart) Since() string {
	const day = 24 * time.Hour
	if c.End.Sub(c.Begin) > day {
		return c.Begin.UTC().Format(time.DateTime)
	}
	return c.Begin.UTC().Format(time.TimeOnly)
}

// The size of the box in which charts are drawn.
const (
	ChartWidth  = 600
	ChartHeight = 120
)

// newChart draws the samples. With fewer than two samples it is empty.
func newChart(title string, samples []Sample, series ...ChartSeries) Chart {
	chart := Chart{Title: title}
	const minSamples = 2
	if len(samples) < minSamples {
		return chart
	}
	chart.Begin, chart.End = samples[0].Time, samples[len(samples)-1].Time
	largest := 1.0
	for _, s := range series {
		for i := range samples {
			if value := s.Value(&samples[i]); value != nil {
				largest = max(largest, *value)
			}
		}
	}
	chart.Max = render.FormatDecimal(largest)
	var texts []string
	for _, s := range series {
		line := Line{Name: s.Name, Path: chart.path(samples, s, largest), Last: Unknown}
		if last := s.Value(&samples[len(samples)-1]); last != nil {
			line.Last = render.FormatDecimal(*last)
		}
		chart.Lines = append(chart.Lines, line)
		texts = append(texts, fmt.Sprintf("%s now %s", line.Name, line.Last))
	}
	chart.Text = fmt.Sprintf("%s: %s; largest %s", title, strings.Join(texts, ", "), chart.Max)
	return chart
}

// newLine returns the recent values as the path of a small chart; empty with fewer than two samples.
func newLine(samples []Sample, value func(*Sample) *float64) string {
	const maxPoints = 60
	chart := newChart("", samples[max(0, len(samples)-maxPoints):], ChartSeries{Value: value})
	if len(chart.Lines) == 0 {
		return ""
	}
	return chart.Lines[0].Path
}

// path draws a line with a step at each change, and a gap where the value is unknown.
func (c *Chart) path(samples []Sample, series ChartSeries, largest float64) string {
	total := max(c.End.Sub(c.Begin).Seconds(), 1)
	var path strings.Builder
	known := false
	for i := range samples {
		value := series.Value(&samples[i])
		if value == nil {
			known = false
			continue
		}
		x, y := samples[i].Time.Sub(c.Begin).Seconds()/total*ChartWidth, ChartHeight-*value/largest*ChartHeight
		if known {
			fmt.Fprintf(&path, "H%sV%s", render.FormatDecimal(x), render.FormatDecimal(y))
		} else {
			fmt.Fprintf(&path, "M%s %s", render.FormatDecimal(x), render.FormatDecimal(y))
		}
		known = true
	}
	return path.String()
}
