package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

const (
	// foldedLines is how many lines of a tool's result are shown.
	foldedLines = 5
	// maxCallColumns is the width to which the input of a tool is shortened.
	maxCallColumns = 120
	maxTabColumns  = 4
)

// SessionEvents renders the events that session-runner writes into the log of a session.
type SessionEvents struct {
	Style terminal.Style
	// Full shows the whole results of tools, and the changes of files.
	Full bool
}

// Lines returns the lines to print for a line of a log. A line that is no event loses its control characters, because the agent can
// write any.
func (r *SessionEvents) Lines(line []byte) []string {
	prefix, rest := "", string(line)
	if time, after, found := strings.Cut(rest, " "); found && !strings.HasPrefix(rest, "{") && strings.HasPrefix(after, "{") {
		prefix, rest = terminal.Sanitize(time)+" ", after // of --timestamps
	}
	event := agentprofile.Event{}
	if !strings.HasPrefix(rest, "{") || json.Unmarshal([]byte(rest), &event) != nil || event.Type == "" {
		return []string{printable(string(line))}
	}
	lines := r.event(&event)
	if event.Omitted > 0 {
		lines = append(lines, r.Style.Colorize(terminal.Dim, fmt.Sprintf("  … %d bytes omitted", event.Omitted)))
	}
	for i := range lines {
		lines[i] = prefix + lines[i]
	}
	return lines
}

func (r *SessionEvents) event(e *agentprofile.Event) []string {
	switch e.Type {
	case agentprofile.EventText:
		return r.lines("", "", e.Text)
	case agentprofile.EventThinking:
		return r.lines(terminal.Dim, "… ", e.Text)
	case agentprofile.EventToolCall:
		return r.toolCall(e.Tool)
	case agentprofile.EventToolResult:
		return r.toolResult(e)
	case agentprofile.EventRetry:
		return r.lines(terminal.Yellow, "retry: ", e.Text)
	case agentprofile.EventError:
		return r.lines(terminal.Red, "error: ", e.Text)
	case agentprofile.EventResult:
		if e.Failed {
			return r.lines(terminal.Red, "failed: ", e.Text)
		}
		return []string{r.Style.Success("finished")} // its text repeats the agent's last text
	case agentprofile.EventStarted:
		return r.lines(terminal.Dim, "", strings.TrimSpace("started "+e.Model+" in conversation "+e.Conversation))
	case agentprofile.EventUsage:
		return r.usage(e)
	default:
		return r.lines(terminal.Dim, "", e.Text)
	}
}

// lines returns the lines of a text in a color, the first line with a mark and the others indented.
func (r *SessionEvents) lines(color terminal.Color, mark, text string) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, r.Style.Colorize(color, mark+printable(line)))
		mark = strings.Repeat(" ", terminal.DisplayWidth(mark))
	}
	return lines
}

func (r *SessionEvents) usage(e *agentprofile.Event) []string {
	if e.Usage == nil || !e.Total {
		return nil // the usage of single requests would be more lines than the work
	}
	text := fmt.Sprintf("%d tokens in, %d from the cache, %d out", e.Usage.InputTokens+e.Usage.CacheWriteTokens, e.Usage.CacheReadTokens, e.Usage.OutputTokens)
	if e.CostUSD != nil {
		text += fmt.Sprintf(", $%.4f", *e.CostUSD)
	}
	return r.lines(terminal.Dim, "", text)
}

func (r *SessionEvents) toolResult(e *agentprofile.Event) []string {
	color := terminal.Dim
	if e.Failed {
		color = terminal.Red
	}
	if strings.TrimSpace(e.Text) == "" {
		return nil
	}
	lines := r.lines(color, "  ", e.Text)
	if hidden := len(lines) - foldedLines; hidden > 1 && !r.Full {
		lines = append(lines[:foldedLines], r.Style.Colorize(terminal.Dim, fmt.Sprintf("  … %d more lines", hidden)))
	}
	return lines
}

// toolInput has the fields that show the work of a tool, in the spellings of the agents.
type toolInput struct {
	Command    any    `json:"command"`
	Cmd        string `json:"cmd"`
	FilePath   string `json:"file_path"`
	FilePathOC string `json:"filePath"`
	Path       string `json:"path"`
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	OldOC      string `json:"oldString"`
	NewOC      string `json:"newString"`
	Content    string `json:"content"`
}

func (r *SessionEvents) toolCall(tool *agentprofile.Tool) []string {
	if tool == nil {
		return nil
	}
	in := toolInput{}
	_ = json.Unmarshal(tool.Input, &in) // other inputs are shown unchanged
	head := r.Style.Colorize(terminal.Cyan, "▸ "+printable(tool.Name))
	edit, isEdit := in.edit()
	if !isEdit {
		text := CallText(tool)
		if !r.Full {
			text = terminal.Truncate(text, maxCallColumns)
		}
		return []string{head + " " + text}
	}
	added, removed := edit.Lines()
	lines := []string{fmt.Sprintf("%s %s (+%d -%d)", head, printable(edit.Path), added, removed)}
	if r.Full {
		lines = append(lines, r.diff(terminal.Red, "  - ", edit.Removed)...)
		lines = append(lines, r.diff(terminal.Green, "  + ", edit.Added)...)
	}
	return lines
}

// CallText is what a call of a tool does, in a line: its command, its file, or else its input.
func CallText(tool *agentprofile.Tool) string {
	in := toolInput{}
	_ = json.Unmarshal(tool.Input, &in) // other inputs are shown unchanged
	text := cmp.Or(in.Cmd, in.FilePath, in.FilePathOC, in.Path)
	if command, isText := in.Command.(string); isText {
		text = command
	}
	return terminal.Sanitize(cmp.Or(text, string(tool.Input)))
}

// Edit is a change of a file by an agent.
type Edit struct{ Path, Removed, Added string }

// EditOf returns the change of a file that a call of a tool makes, if any.
func EditOf(tool *agentprofile.Tool) (Edit, bool) {
	in := toolInput{}
	if tool == nil || json.Unmarshal(tool.Input, &in) != nil {
		return Edit{}, false
	}
	return in.edit()
}

func (in *toolInput) edit() (Edit, bool) {
	e := Edit{Path: cmp.Or(in.FilePath, in.FilePathOC, in.Path), Removed: cmp.Or(in.OldString, in.OldOC), Added: cmp.Or(in.NewString, in.NewOC, in.Content)}
	return e, e.Path != "" && (e.Removed != "" || e.Added != "")
}

// Lines returns how many lines the edit adds and removes.
func (e *Edit) Lines() (added, removed int) { return countLines(e.Added), countLines(e.Removed) }

func (r *SessionEvents) diff(color terminal.Color, mark, text string) []string {
	if text == "" {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, r.Style.Colorize(color, mark+printable(line)))
	}
	return lines
}

func countLines(text string) int {
	if text == "" {
		return 0
	}
	return strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
}

// printable returns a line without control characters, and with its indentation.
func printable(line string) string {
	text := strings.TrimLeft(line, " \t")
	indent := strings.ReplaceAll(line[:len(line)-len(text)], "\t", strings.Repeat(" ", maxTabColumns))
	return indent + terminal.Sanitize(text)
}
