package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

type deadLetterCommand struct {
	*environment

	format        string
	all, yes      bool
	limit, oldest int
	ids           []uint64
	filter        string
}

func newDeadLetterCommand(env *environment) *cobra.Command {
	d := &deadLetterCommand{environment: env}
	command := newParentCommand("dead", nil, "Manage the dead letters of a Queue",
		d.newListCommand(), d.newShowCommand(), d.newEditCommand(), d.newRequeueCommand(), d.newDeleteCommand(), d.newPurgeCommand())
	command.Long = "Manage the dead letters of a Queue: messages that workers could not process.\n\n" +
		"They are stored on the broker. The plugin reads the broker's Secrets with your permissions. If the broker's address is a Service " +
		"in the cluster, the plugin forwards a port to a Pod behind it."
	return command
}

func (d *deadLetterCommand) addFilterFlag(command *cobra.Command) {
	command.Flags().StringVar(&d.filter, "filter", "", "Select the dead letters that have this text in their error, kind or priority.")
}

// matches reports whether the IDs, or without IDs the filter, select a dead letter.
func (d *deadLetterCommand) matches(l *broker.DeadLetter) bool {
	if len(d.ids) > 0 {
		return slices.Contains(d.ids, l.ID)
	}
	kind := broker.HeaderValue(l.Headers, broker.KindHeader)
	return slices.ContainsFunc([]string{l.Error, l.Priority, kind}, func(text string) bool { return strings.Contains(text, d.filter) })
}

func (d *deadLetterCommand) parseIDs(texts []string) error {
	for _, text := range texts {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return fmt.Errorf("invalid ID %q: must be that of a dead letter, as in queue dead list", terminal.Sanitize(text))
		}
		d.ids = append(d.ids, id)
	}
	return nil
}

func (d *deadLetterCommand) newListCommand() *cobra.Command {
	command := newBrokerCommand(d.environment, "list NAME", "List dead letters, the oldest first",
		"List dead letters, the oldest first. Only the output formats json and yaml contain the payload.", d.listDeadLetters)
	command.PreRunE = func(*cobra.Command, []string) error {
		if d.limit < 0 {
			return fmt.Errorf("invalid --limit %d: must be 0 (no limit) or greater", d.limit)
		}
		return nil
	}
	command.Aliases = []string{"ls"}
	d.addFilterFlag(command)
	const defaultLimit = 100
	command.Flags().IntVar(&d.limit, "limit", defaultLimit, "Maximum number of dead letters to list; 0 lists all.")
	addOutputFlag(command, &d.format, outputTable, outputJSON, outputYAML)
	return command
}

func (d *deadLetterCommand) listDeadLetters(ctx context.Context, q *connectedQueue, _ []string) error {
	stats, err := q.Stats(ctx, q.brokerName)
	if err != nil {
		return err
	}
	letters, err := d.readDeadLetters(ctx, q)
	if err != nil {
		return err
	}
	if d.format != outputTable {
		outputs := []render.DeadLetter{}
		for i := range letters {
			outputs = append(outputs, deadLetterOutput(&letters[i]))
		}
		return printEncoded(d.out, d.format, outputs)
	}
	if len(letters) == 0 {
		fmt.Fprintf(d.errOut, "%s has no dead letters.\n", queueKind.qualifiedName(q.Queue))
		return nil
	}
	rows := [][]string{{"ID", "DIED", "PRIORITY", "ATTEMPTS", "BYTES", "ERROR"}}
	for i := range letters {
		l := &letters[i]
		rows = append(rows, []string{
			strconv.FormatUint(l.ID, 10), formatAge(l.DeadLetteredTime, d.now()), terminal.Sanitize(l.Priority), strconv.Itoa(l.Attempts),
			strconv.Itoa(len(l.Payload)), terminal.Sanitize(l.Error),
		})
	}
	lines := d.outputStyle().Table(rows)
	if more := stats.DeadLetters - int64(len(letters)); more > 0 && d.filter == "" {
		lines = append(lines, "", fmt.Sprintf("showing %d of %d; --limit=0 lists all", len(letters), stats.DeadLetters))
	}
	return terminal.WriteLines(d.out, lines)
}

// readDeadLetters returns the dead letters that match the filter.
func (d *deadLetterCommand) readDeadLetters(ctx context.Context, q *connectedQueue) ([]broker.DeadLetter, error) {
	if d.filter == "" {
		return q.DeadLetters(q.brokerName).List(ctx, 0, d.limit)
	}
	var matching []broker.DeadLetter
	for after := uint64(0); ; {
		const pageSize = 100
		page, err := q.DeadLetters(q.brokerName).List(ctx, after, pageSize)
		if err != nil || len(page) == 0 {
			return matching, err
		}
		for i := range page {
			if d.matches(&page[i]) {
				matching = append(matching, page[i])
			}
			if d.limit > 0 && len(matching) == d.limit {
				return matching, nil
			}
		}
		after = page[len(page)-1].ID
	}
}

func deadLetterOutput(l *broker.DeadLetter) render.DeadLetter {
	return render.DeadLetter{
		ID: l.ID, Priority: l.Priority, Error: l.Error, Attempts: l.Attempts, Origin: l.MessageID,
		Sent: l.SentTime, Died: l.DeadLetteredTime, Headers: l.Headers, Payload: l.Payload,
	}
}

// newSingleCommand returns a command with the arguments NAME and ID of a dead letter.
func (d *deadLetterCommand) newSingleCommand(
	verb, short, long string, run func(ctx context.Context, q *connectedQueue, letter *broker.DeadLetter) error,
) *cobra.Command {
	command := newBrokerCommand(d.environment, verb+" NAME ID", short, long, func(ctx context.Context, q *connectedQueue, _ []string) error {
		letters, err := q.DeadLetters(q.brokerName).List(ctx, d.ids[0]-1, 1)
		if err != nil {
			return err
		}
		if len(letters) == 0 || letters[0].ID != d.ids[0] {
			return fmt.Errorf("it has no dead letter %d", d.ids[0])
		}
		return run(ctx, q, &letters[0])
	})
	command.PreRunE = func(_ *cobra.Command, args []string) error { return d.parseIDs(args[1:]) }
	return command
}

func (d *deadLetterCommand) newShowCommand() *cobra.Command {
	command := d.newSingleCommand("show", "Show a dead letter with its payload",
		"Show a dead letter with its payload. Control characters are escaped; at most 4 KiB are shown, unless the output is json or yaml.",
		func(_ context.Context, _ *connectedQueue, letter *broker.DeadLetter) error {
			if d.format != outputTable {
				return printEncoded(d.out, d.format, deadLetterOutput(letter))
			}
			rows := [][]string{
				{"ID:", strconv.FormatUint(letter.ID, 10)},
				{"Died:", formatAge(letter.DeadLetteredTime, d.now()) + " ago"},
				{"Priority:", terminal.Sanitize(letter.Priority)},
				{"Attempts:", strconv.Itoa(letter.Attempts)},
				{"Origin:", terminal.Sanitize(letter.MessageID)},
				{"Error:", terminal.Sanitize(letter.Error)},
			}
			for _, name := range slices.Sorted(maps.Keys(letter.Headers)) {
				rows = append(rows, []string{"Header:", terminal.Sanitize(name + ": " + strings.Join(letter.Headers[name], ", "))})
			}
			lines := append(terminal.AlignColumns(rows), fmt.Sprintf("Payload (%d bytes):", len(letter.Payload)))
			lines = append(lines, escapedLines(letter.Payload[:min(len(letter.Payload), maxShownBytes)])...)
			if more := len(letter.Payload) - maxShownBytes; more > 0 {
				lines = append(lines, fmt.Sprintf("… %d bytes more; -o json has all", more))
			}
			return terminal.WriteLines(d.out, lines)
		})
	addOutputFlag(command, &d.format, outputTable, outputJSON, outputYAML)
	return command
}

// maxShownBytes is how much of a payload is shown. The output formats json and yaml have all of it.
const maxShownBytes = 4096

// escapedLines returns a payload as lines without control characters.
func escapedLines(payload []byte) []string {
	var lines []string
	for line := range bytes.SplitSeq(payload, []byte("\n")) {
		if utf8.Valid(line) {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		quoted := strconv.Quote(string(line))
		lines = append(lines, "  "+strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1:len(quoted)-1]))
	}
	return lines
}

func (d *deadLetterCommand) newEditCommand() *cobra.Command {
	return d.newSingleCommand("edit", "Edit the payload of a dead letter, and requeue it",
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
			number, err := q.DeadLetters(q.brokerName).Requeue(ctx, broker.RequeueOptions{Selects: d.matches, Payload: &edited})
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

// editPayload returns the payload after editing. Only the user can read the file.
func (d *deadLetterCommand) editPayload(ctx context.Context, payload []byte) ([]byte, error) {
	var editor []string
	for _, name := range []string{"KUBE_EDITOR", "VISUAL", "EDITOR"} {
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

func (d *deadLetterCommand) newRequeueCommand() *cobra.Command {
	command := newBrokerCommand(d.environment, "requeue NAME [ID...]", "Requeue dead letters",
		"Requeue dead letters as new messages, without their earlier attempts. They go to the end of the queue. Select them by ID, "+
			"by a text in their error, kind or priority, or all.",
		func(ctx context.Context, q *connectedQueue, _ []string) error {
			options := broker.RequeueOptions{Number: d.oldest}
			if len(d.ids) > 0 || d.filter != "" {
				options.Selects = d.matches
			}
			number, err := q.DeadLetters(q.brokerName).Requeue(ctx, options)
			return d.printOutcome(q, "requeued", number, err)
		})
	command.Args = cobra.MinimumNArgs(1)
	command.PreRunE = func(_ *cobra.Command, args []string) error {
		if err := d.parseIDs(args[1:]); err != nil {
			return err
		}
		selections := 0
		for _, isSet := range []bool{d.all, d.oldest != 0, d.filter != "", len(d.ids) > 0} {
			if isSet {
				selections++
			}
		}
		switch {
		case selections == 0 || selections > 1 && len(d.ids) == 0 && d.filter == "":
			return errors.New("set either --all or --oldest")
		case selections > 1:
			return errors.New("set only one of IDs, --filter, --all and --oldest")
		case d.oldest < 0:
			return fmt.Errorf("invalid --oldest %d: must be at least 1", d.oldest)
		}
		return nil
	}
	command.Flags().BoolVar(&d.all, "all", false, "Requeue all dead letters that exist when the command starts.")
	command.Flags().IntVar(&d.oldest, "oldest", 0, "Requeue this many dead letters, the oldest first.")
	d.addFilterFlag(command)
	return command
}

func (d *deadLetterCommand) newDeleteCommand() *cobra.Command {
	command := newBrokerCommand(d.environment, "delete NAME [ID...]", "Delete some dead letters",
		"Delete dead letters, selected by ID, or by a text in their error, kind or priority. This cannot be undone. Without --yes, the command "+
			"asks for confirmation, for which it needs a terminal. `queue dead purge` deletes all.",
		func(ctx context.Context, q *connectedQueue, _ []string) error {
			selected := formatDeadLetters(int64(len(d.ids)))
			if len(d.ids) == 0 {
				selected = fmt.Sprintf("the dead letters with %q", d.filter)
			}
			if err := d.confirmDeletion(q, selected); err != nil {
				return err
			}
			number, err := q.DeadLetters(q.brokerName).DeleteSelected(ctx, d.matches)
			return d.printOutcome(q, "deleted", number, err)
		})
	command.Args = cobra.MinimumNArgs(1)
	command.PreRunE = func(_ *cobra.Command, args []string) error {
		err := d.parseIDs(args[1:])
		if err == nil && (len(d.ids) > 0) == (d.filter != "") {
			err = errors.New("set either IDs or --filter")
		}
		return err
	}
	d.addFilterFlag(command)
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask for confirmation.")
	return command
}

// printOutcome prints how many dead letters were processed, and returns an error if some of the IDs do not exist.
func (d *deadLetterCommand) printOutcome(q *connectedQueue, verb string, number int, err error) error {
	if err == nil || number > 0 {
		fmt.Fprintf(d.out, "%s: %s %s\n", queueKind.qualifiedName(q.Queue), verb, formatDeadLetters(int64(number)))
	}
	if err == nil && number < len(d.ids) {
		return fmt.Errorf("%d of the %d dead letters do not exist", len(d.ids)-number, len(d.ids))
	}
	return err
}

func (d *deadLetterCommand) newPurgeCommand() *cobra.Command {
	command := newBrokerCommand(d.environment, "purge NAME", "Delete all dead letters",
		"Delete all dead letters. This cannot be undone. Without --yes, the command asks for confirmation, for which it needs a terminal.",
		func(ctx context.Context, q *connectedQueue, _ []string) error {
			stats, err := q.Stats(ctx, q.brokerName)
			if err != nil {
				return err
			}
			if stats.DeadLetters == 0 {
				fmt.Fprintf(d.out, "%s has no dead letters\n", queueKind.qualifiedName(q.Queue))
				return nil
			}
			if err := d.confirmDeletion(q, formatDeadLetters(stats.DeadLetters)); err != nil {
				return err
			}
			if err := q.DeadLetters(q.brokerName).Purge(ctx); err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%s: deleted %s\n", queueKind.qualifiedName(q.Queue), formatDeadLetters(stats.DeadLetters))
			return nil
		})
	command.PreRunE = func(*cobra.Command, []string) error {
		if !d.all {
			return errors.New("set --all: a broker can only delete all dead letters of a queue")
		}
		return nil
	}
	command.Flags().BoolVar(&d.all, "all", false, "Delete all dead letters. Required.")
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask for confirmation.")
	return command
}

func formatDeadLetters(number int64) string {
	if number == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", number)
}

// confirmDeletion asks the user to type the name of the Queue, unless --yes is set. Without a terminal, it returns an error.
func (d *deadLetterCommand) confirmDeletion(q *connectedQueue, selected string) error {
	if d.yes {
		return nil
	}
	action := fmt.Sprintf("delete %s of %s", selected, queueKind.qualifiedName(q.Queue))
	if !isInteractive(d.in) {
		return fmt.Errorf("cannot %s without confirmation: set --yes, or run on a terminal", action)
	}
	fmt.Fprintf(d.errOut, "About to %s. This cannot be undone. Type %s to continue: ", action, q.Name)
	return checkConfirmation(d.in, action, q.Name)
}

func checkConfirmation(in io.Reader, action, word string) error {
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != word {
		return fmt.Errorf("did not %s: the answer was not %q", action, word)
	}
	return nil
}

func isInteractive(in io.Reader) bool {
	file, isFile := in.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
