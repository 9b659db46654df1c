package page

import (
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

const circlePath = "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13z"

// iconPaths are drawn in a square of 16 units: a check, an open circle, a pause and a cross. What has not started is a dot.
var iconPaths = map[view.Level]string{
	view.LevelGood: circlePath + "M5 8.3l2.1 2.1 4-4.4", view.LevelActive: "M8 1.5a6.5 6.5 0 1 1-6.5 6.5", view.LevelWaiting: circlePath + "M6.4 5.6v4.8M9.6 5.6v4.8",
	view.LevelProblem: circlePath + "M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4", view.LevelNone: "M8 6.5a1.5 1.5 0 1 0 0 3a1.5 1.5 0 1 0 0-3z",
}

// icon shows a level. A text beside it says the same.
func icon(level view.Level) g.Node {
	return h.SVG(h.Class("icon "+level.String()), g.Attr("viewBox", "0 0 16 16"), g.Attr("width", "14"), g.Attr("height", "14"), h.Aria("hidden", "true"),
		g.El("path", g.Attr("d", iconPaths[level])))
}

// badge shows a status. Its text has the same meaning as its color and icon.
func badge(level view.Level, text string) g.Node {
	return h.Span(h.Class("badge "+level.String()), icon(level), h.Span(g.Text(text)))
}

// steps draws the steps of a run as a bar of segments.
func steps(all []view.Segment) g.Node {
	if len(all) == 0 {
		return nil
	}
	labels := make([]string, len(all))
	for i, s := range all {
		labels[i] = s.Label
	}
	label := strings.Join(labels, ", ")
	return h.Span(h.Class("segments"), h.Role("img"), h.Aria("label", label), h.Title(label),
		g.Map(all, func(s view.Segment) g.Node { return h.Span(h.Class(s.Level.String())) }))
}

// bars draws runs, the oldest first. A bar is a link to its run, unless the run is gone. The keyboard reaches the same runs in a list.
func (l Links) bars(all []view.Bar) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Span(h.Class("bars"), g.Map(all, func(b view.Bar) g.Node {
		look := g.Group{h.Class(b.Level.String() + " h" + strconv.Itoa(b.Height)), h.Title(b.Label), h.Aria("label", b.Label)}
		if b.IsGone {
			return h.Span(look, h.Role("img"))
		}
		return h.A(look, h.Href(l.Object(b.Entry, "")), h.TabIndex("-1"))
	}))
}

// line draws recent values; nothing without values.
func line(label, path string) g.Node {
	return g.If(path != "", h.SVG(h.Class("line"), g.Attr("viewBox", "0 0 600 120"), g.Attr("preserveAspectRatio", "none"), h.Role("img"), h.Aria("label", label+" since the page started"),
		g.El("path", g.Attr("d", path), g.Attr("vector-effect", "non-scaling-stroke"))))
}
