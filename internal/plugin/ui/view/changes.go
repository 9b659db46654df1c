package view

import (
	"bytes"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

// The limits of the changes on a page.
const (
	maxChangedFiles = 100
	maxChangeBytes  = 1 << 20
)

// DiffLine is a line of a change: it was removed, added, or separates two changes.
type DiffLine struct {
	Removed, Added bool
	Text           string
}

// FileChange is an agent's change of a file.
type FileChange struct {
	Path           string
	Added, Removed int
	Lines          []DiffLine
	// More is the number of changes that are not shown.
	More int
}

// Changes is the page of the files that the agent of a session changed.
type Changes struct {
	*Entry

	Files []FileChange
	// More is the number of changes of files that are not shown.
	More int
	// Problem describes what is missing in the log.
	Problem string
	Command []string
}

// ChangesCommand is the arguments of the command that reads the agent's events.
func ChangesCommand(e *Entry) []string {
	return objectArgs(e, "logs", "--raw", "--tail=20000", "--color=never")
}

// NewChanges reads the output of ChangesCommand: the calls of tools that change files, in the order of the files' first change.
func NewChanges(e *Entry, output []byte, problem string) *Changes {
	v := &Changes{Entry: e, Problem: cleanText(problem), Command: objectArgs(e, "logs", "--full")}
	files, total := map[string]int{}, 0
	for line := range bytes.Lines(output) {
		event, isEvent := eventOfLine(line)
		edit, isEdit := render.EditOf(event.Tool)
		if !isEvent || !isEdit || event.Type != agentprofile.EventToolCall {
			continue
		}
		path := cleanLine(edit.Path)
		i, known := files[path]
		switch {
		case !known && len(v.Files) == maxChangedFiles:
			v.More++
			continue
		case !known:
			i = len(v.Files)
			files[path] = i
			v.Files = append(v.Files, FileChange{Path: path})
		}
		if size := len(edit.Removed) + len(edit.Added); total+size <= maxChangeBytes {
			total += size
			v.Files[i].add(&edit)
		} else {
			v.Files[i].More++
		}
	}
	return v
}

func (f *FileChange) add(edit *render.Edit) {
	added, removed := edit.Lines()
	f.Added, f.Removed = f.Added+added, f.Removed+removed
	if len(f.Lines) > 0 {
		f.Lines = append(f.Lines, DiffLine{Text: "…"})
	}
	for _, text := range diffLines(edit.Removed) {
		f.Lines = append(f.Lines, DiffLine{Removed: true, Text: text})
	}
	for _, text := range diffLines(edit.Added) {
		f.Lines = append(f.Lines, DiffLine{Added: true, Text: text})
	}
}

func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(cleanText(strings.TrimRight(text, "\n")), "\n")
}
