package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// maxShownBytes is how much of a payload is shown. All of it is in the output formats json and yaml.
const maxShownBytes = 4096

func parseDeadLetterIDs(texts []string) ([]uint64, error) {
	var ids []uint64
	for _, text := range texts {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return nil, fmt.Errorf("invalid ID %q: must be that of a dead letter, as in queue dead list", terminal.Sanitize(text))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// selector returns which dead letters a command is about: those with the IDs, or without IDs those that match the filter.
func (d *deadLetterCommand) selector(ids []uint64) func(*broker.DeadLetter) bool {
	if len(ids) > 0 {
		return func(l *broker.DeadLetter) bool { return slices.Contains(ids, l.ID) }
	}
	return func(l *broker.DeadLetter) bool { return matchesFilter(l, d.filter) }
}

func matchesFilter(l *broker.DeadLetter, filter string) bool {
	kind := broker.HeaderValue(l.Headers, broker.KindHeader)
	return slices.ContainsFunc([]string{l.Error, l.Priority, kind}, func(text string) bool { return strings.Contains(text, filter) })
}

// newDeadLetterIDCommand returns a command with the arguments NAME and ID of a dead letter.
func (d *deadLetterCommand) newDeadLetterIDCommand(
	verb, short, long string, run func(ctx context.Context, q *connectedQueue, letter *broker.DeadLetter) error,
) *cobra.Command {
	return newJobObjectCommand(d.environment, verb, short, long, &d.brokerURL, func(ctx context.Context, q *connectedQueue, text string) error {
		ids, err := parseDeadLetterIDs([]string{text})
		if err != nil {
			return err
		}
		letters, err := q.DeadLetters(q.brokerName).List(ctx, ids[0]-1, 1)
		if err != nil {
			return err
		}
		if len(letters) == 0 || letters[0].ID != ids[0] {
			return fmt.Errorf("it has no dead letter %d", ids[0])
		}
		return run(ctx, q, &letters[0])
	})
}

func (d *deadLetterCommand) newShowCommand() *cobra.Command {
	command := d.newDeadLetterIDCommand("show", "Show a dead letter with its payload",
		"Show a dead letter with its payload. Control characters are escaped; at most 4 KiB are shown, unless the output is json or yaml.",
		func(_ context.Context, _ *connectedQueue, letter *broker.DeadLetter) error {
			if d.outputFormat != outputTable {
				return printEncoded(d.out, d.outputFormat, deadLetterOutputs([]broker.DeadLetter{*letter})[0])
			}
			return terminal.WriteLines(d.out, d.renderDeadLetter(letter))
		})
	addOutputFlag(command, &d.outputFormat, outputTable, outputJSON, outputYAML)
	return command
}

func (d *deadLetterCommand) renderDeadLetter(l *broker.DeadLetter) []string {
	rows := [][]string{
		{"ID:", strconv.FormatUint(l.ID, 10)},
		{"Died:", duration.HumanDuration(max(0, d.now().Sub(l.DeadLetteredTime))) + " ago"},
		{"Priority:", terminal.Sanitize(l.Priority)},
		{"Attempts:", strconv.Itoa(l.Attempts)},
		{"Origin:", terminal.Sanitize(l.MessageID)},
		{"Error:", terminal.Sanitize(l.Error)},
	}
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		rows = append(rows, []string{"Header:", terminal.Sanitize(name + ": " + strings.Join(l.Headers[name], ", "))})
	}
	lines := append(terminal.AlignColumns(rows), fmt.Sprintf("Payload (%d bytes):", len(l.Payload)))
	lines = append(lines, escapedLines(l.Payload[:min(len(l.Payload), maxShownBytes)])...)
	if more := len(l.Payload) - maxShownBytes; more > 0 {
		lines = append(lines, fmt.Sprintf("… %d bytes more; -o json has all", more))
	}
	return lines
}

// escapedLines returns a payload as lines without control characters.
func escapedLines(payload []byte) []string {
	var lines []string
	for line := range bytes.SplitSeq(payload, []byte("\n")) {
		if utf8.Valid(line) {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		quoted := strconv.Quote(string(line))
		quoted = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
		lines = append(lines, "  "+quoted)
	}
	return lines
}

// editors are the environment variables with the editor of the user.
var editors = []string{"KUBE_EDITOR", "VISUAL", "EDITOR"}

func (d *deadLetterCommand) newEditCommand() *cobra.Command {
	return d.newDeadLetterIDCommand("edit", "Edit the payload of a dead letter, and requeue it",
		"Open the payload of a dead letter in the editor of $KUBE_EDITOR, $VISUAL or $EDITOR. If you change and save it, the dead letter is "+
			"requeued with the new payload; otherwise, nothing happens.",
		func(ctx context.Context, q *connectedQueue, letter *broker.DeadLetter) error {
			edited, err := d.editPayload(ctx, letter.Payload)
			if err != nil {
				return err
			}
			if bytes.Equal(edited, letter.Payload) {
				fmt.Fprintf(d.out, "%s: dead letter %d is unchanged\n", queueKind.qualifiedName(q.Queue), letter.ID)
				return nil
			}
			number, err := q.DeadLetters(q.brokerName).RequeueSelected(ctx, func(l *broker.DeadLetter) bool { return l.ID == letter.ID }, &edited)
			if err == nil && number == 0 {
				err = fmt.Errorf("the dead letter %d does not exist any more", letter.ID)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%s: requeued dead letter %d with %d bytes\n", queueKind.qualifiedName(q.Queue), letter.ID, len(edited))
			return nil
		})
}

// editPayload returns what the user made of a payload. The file is readable by the user only.
func (d *deadLetterCommand) editPayload(ctx context.Context, payload []byte) ([]byte, error) {
	var editor []string
	for _, name := range editors {
		if editor = strings.Fields(os.Getenv(name)); len(editor) > 0 {
			break
		}
	}
	if len(editor) == 0 {
		return nil, errors.New("no editor: set $KUBE_EDITOR, $VISUAL or $EDITOR")
	}
	dir, err := os.MkdirTemp("", "yardmaster-edit-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "payload")
	if err := os.WriteFile(file, payload, 0o600); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, editor[0], append(editor[1:], file)...) //nolint:gosec // the user chooses the editor
	command.Stdin, command.Stdout, command.Stderr = d.in, d.out, d.errOut
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("running the editor %s: %w", editor[0], err)
	}
	edited, err := os.ReadFile(file)
	if err == nil && len(edited) > maxPayloadBytes {
		err = fmt.Errorf("the payload has more than %d bytes", maxPayloadBytes)
	}
	return edited, err
}
