package page

import (
	"fmt"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// Changes is the content of the page of the files that the agent of a session changed.
func Changes(l Links, c *view.Changes) g.Node {
	return g.Group{
		l.partHead(c.Entry, "Changes of "+c.Name),
		h.P(h.Class("note"), g.Text("What the agent's tools wrote into files, from the log of the latest attempt when the page opens. Commands that the agent ran may have changed more.")),
		l.command(c.Command),
		problemNote(c.Problem),
		g.If(len(c.Files) == 0, h.P(h.Class("note"), g.Text("The log shows no changed files."))),
		g.Map(numbered(c.Files), func(file numberedFile) g.Node { return changedFile(&file) }),
		g.If(c.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more changes of other files: use the command.", c.More)))),
	}
}

type numberedFile struct {
	*view.FileChange

	number int
}

func numbered(files []view.FileChange) []numberedFile {
	var all []numberedFile
	for i := range files {
		all = append(all, numberedFile{&files[i], i + 1})
	}
	return all
}

func changedFile(f *numberedFile) g.Node {
	return h.Details(h.ID("file-"+strconv.Itoa(f.number)), g.Attr("open"),
		h.Summary(h.Code(g.Text(f.Path)), g.Text(fmt.Sprintf(" +%d −%d", f.Added, f.Removed))),
		h.Pre(h.TabIndex("0"), h.Role("group"), h.Aria("label", "Changes of "+f.Path), g.Map(f.Lines, func(line view.DiffLine) g.Node { return diffLine(&line) })),
		g.If(f.More > 0, h.P(h.Class("note"), g.Text(fmt.Sprintf("%d more changes of this file: use the command.", f.More)))))
}

func diffLine(line *view.DiffLine) g.Node {
	switch {
	case line.Removed:
		return h.Span(h.Class("removed"), g.Text("- "+line.Text+"\n"))
	case line.Added:
		return h.Span(h.Class("added"), g.Text("+ "+line.Text+"\n"))
	default:
		return g.Text("  " + line.Text + "\n")
	}
}
