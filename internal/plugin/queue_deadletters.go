package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// deadLetterCommand is `kubectl yardmaster queue dead` with its subcommands.
type deadLetterCommand struct {
	*environment

	brokerURL, outputFormat string
	all, yes                bool
	limit, oldest           int
	filter                  string
}

func newDeadLetterCommand(env *environment) *cobra.Command {
	d := &deadLetterCommand{environment: env}
	command := newParentCommand("dead", nil, "Manage the dead letters of a Queue", d.newListCommand(), d.newShowCommand(), d.newEditCommand(), d.newRequeueCommand(), d.newDeleteCommand(), d.newPurgeCommand())
	command.Long = "Manage the dead letters of a Queue: messages that workers could not process.\n\n" +
		"They are stored on the broker. The plugin reads the broker's Secrets with your permissions. If the broker's address is a Service " +
		"in the cluster, the plugin forwards a port to a Pod behind it."
	command.PersistentFlags().StringVar(&d.brokerURL, "broker-url", "", brokerURLHelp)
	return command
}

// newSubcommand returns a command that checks its flags and runs with a connection to the
// broker.
func (d *deadLetterCommand) newSubcommand(verb, short, long string, run func(ctx context.Context, q *connectedQueue) error, check func() error) *cobra.Command {
	command := queueKind.newObjectCommand(d.environment, verb, short, long, func(ctx context.Context, cluster *clusterConnection, object *v1alpha1.Queue) error {
		return runOnBroker(ctx, cluster, object, d.brokerURL, run)
	})
	command.PreRunE = func(*cobra.Command, []string) error { return check() }
	return command
}

func (d *deadLetterCommand) newListCommand() *cobra.Command {
	command := d.newSubcommand("list", "List dead letters, the oldest first",
		"List dead letters, the oldest first. Only the output formats json and yaml contain the payload.", d.listDeadLetters, func() error {
			if d.limit < 0 {
				return fmt.Errorf("invalid --limit %d: must be 0 (no limit) or greater", d.limit)
			}
			return nil
		})
	command.Aliases = []string{"ls"}
	const defaultLimit = 100
	command.Flags().StringVar(&d.filter, "filter", "", "List only dead letters that have this text in their error, kind or priority.")
	command.Flags().IntVar(&d.limit, "limit", defaultLimit, "Maximum number of dead letters to list; 0 lists all.")
	addOutputFlag(command, &d.outputFormat, outputTable, outputJSON, outputYAML)
	return command
}

func (d *deadLetterCommand) newRequeueCommand() *cobra.Command {
	var ids []uint64
	command := d.newSubcommand("requeue", "Requeue dead letters",
		"Requeue dead letters as new messages, without their earlier attempts. They go to the end of the queue. Select them by ID, "+
			"by a text in their error, kind or priority, or all.",
		func(ctx context.Context, q *connectedQueue) error { return d.requeueDeadLetters(ctx, q, ids) }, nil)
	command.Use, command.Args = "requeue NAME [ID...]", cobra.MinimumNArgs(1)
	command.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if ids, err = parseDeadLetterIDs(args[1:]); err != nil {
			return err
		}
		selections := 0
		for _, isSet := range []bool{d.all, d.oldest != 0, d.filter != "", len(ids) > 0} {
			if isSet {
				selections++
			}
		}
		switch {
		case selections == 0 || selections > 1 && len(ids) == 0 && d.filter == "":
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
	command.Flags().StringVar(&d.filter, "filter", "", "Requeue the dead letters that have this text in their error, kind or priority.")
	return command
}

func (d *deadLetterCommand) newPurgeCommand() *cobra.Command {
	command := d.newSubcommand("purge", "Delete all dead letters",
		"Delete all dead letters. This cannot be undone. Without --yes, the command asks for confirmation, for which it needs a terminal.",
		d.purgeDeadLetters, func() error {
			if !d.all {
				return errors.New("set --all: a broker can only delete all dead letters of a queue")
			}
			return nil
		})
	command.Flags().BoolVar(&d.all, "all", false, "Delete all dead letters. Required.")
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask for confirmation.")
	return command
}

func (d *deadLetterCommand) listDeadLetters(ctx context.Context, q *connectedQueue) error {
	stats, err := q.Stats(ctx, q.brokerName)
	if err != nil {
		return err
	}
	letters, err := d.readDeadLetters(ctx, q)
	if err != nil {
		return err
	}
	if d.outputFormat != outputTable {
		return printEncoded(d.out, d.outputFormat, deadLetterOutputs(letters))
	}
	if len(letters) == 0 {
		fmt.Fprintf(d.errOut, "%s has no dead letters.\n", queueKind.qualifiedName(q.Queue))
		return nil
	}
	lines := renderDeadLetters(d.outputStyle(), letters, d.now())
	if more := stats.DeadLetters - int64(len(letters)); more > 0 && d.filter == "" {
		lines = append(lines, "", fmt.Sprintf("showing %d of %d; --limit=0 lists all", len(letters), stats.DeadLetters))
	}
	return terminal.WriteLines(d.out, lines)
}

// readDeadLetters returns those that match the filter.
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
			if matchesFilter(&page[i], d.filter) {
				matching = append(matching, page[i])
			}
			if d.limit > 0 && len(matching) == d.limit {
				return matching, nil
			}
		}
		after = page[len(page)-1].ID
	}
}

func renderDeadLetters(s terminal.Style, letters []broker.DeadLetter, now time.Time) []string {
	rows := [][]string{{"ID", "DIED", "PRIORITY", "ATTEMPTS", "BYTES", "ERROR"}}
	for i := range letters {
		l := &letters[i]
		rows = append(rows, []string{
			strconv.FormatUint(l.ID, 10), duration.HumanDuration(max(0, now.Sub(l.DeadLetteredTime))), terminal.Sanitize(l.Priority), strconv.Itoa(l.Attempts),
			strconv.Itoa(len(l.Payload)), terminal.Sanitize(l.Error),
		})
	}
	lines := terminal.AlignColumns(rows)
	lines[0] = s.Colorize(terminal.Dim, lines[0])
	return lines
}

func deadLetterOutputs(letters []broker.DeadLetter) []render.DeadLetter {
	all := []render.DeadLetter{}
	for i := range letters {
		l := &letters[i]
		all = append(all, render.DeadLetter{
			ID: l.ID, Priority: l.Priority, Error: l.Error, Attempts: l.Attempts, Origin: l.MessageID,
			Sent: l.SentTime, Died: l.DeadLetteredTime, Headers: l.Headers, Payload: l.Payload,
		})
	}
	return all
}

func (d *deadLetterCommand) requeueDeadLetters(ctx context.Context, q *connectedQueue, ids []uint64) (err error) {
	letters, number := q.DeadLetters(q.brokerName), 0
	switch {
	case len(ids) > 0:
		number, err = letters.RequeueSelected(ctx, d.selector(ids), nil)
	case d.filter != "":
		number, err = letters.RequeueSelected(ctx, d.selector(nil), nil)
	default:
		number, err = letters.Requeue(ctx, d.oldest)
	}
	if err == nil || number > 0 {
		fmt.Fprintf(d.out, "%s: requeued %s\n", queueKind.qualifiedName(q.Queue), formatDeadLetters(int64(number)))
	}
	if err == nil {
		err = checkAllExisted(number, ids)
	}
	return err
}

// checkAllExisted returns an error if fewer dead letters were found than the user named.
func checkAllExisted(found int, ids []uint64) error {
	if found >= len(ids) {
		return nil
	}
	return fmt.Errorf("%d of the %d dead letters do not exist", len(ids)-found, len(ids))
}

func (d *deadLetterCommand) purgeDeadLetters(ctx context.Context, q *connectedQueue) error {
	stats, err := q.Stats(ctx, q.brokerName)
	if err != nil {
		return err
	}
	if stats.DeadLetters == 0 {
		fmt.Fprintf(d.out, "%s has no dead letters\n", queueKind.qualifiedName(q.Queue))
		return nil
	}
	if !d.yes {
		if err := d.confirmIrreversible(fmt.Sprintf("delete %s of %s", formatDeadLetters(stats.DeadLetters), queueKind.qualifiedName(q.Queue)), q.Name); err != nil {
			return err
		}
	}
	if err := q.DeadLetters(q.brokerName).Purge(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s: deleted %s\n", queueKind.qualifiedName(q.Queue), formatDeadLetters(stats.DeadLetters))
	return nil
}

func (d *deadLetterCommand) newDeleteCommand() *cobra.Command {
	var ids []uint64
	command := d.newSubcommand("delete", "Delete some dead letters",
		"Delete dead letters, selected by ID, or by a text in their error, kind or priority. This cannot be undone. Without --yes, the command "+
			"asks for confirmation, for which it needs a terminal. `queue dead purge` deletes all.",
		func(ctx context.Context, q *connectedQueue) error { return d.deleteDeadLetters(ctx, q, ids) }, nil)
	command.Use, command.Args = "delete NAME [ID...]", cobra.MinimumNArgs(1)
	command.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		ids, err = parseDeadLetterIDs(args[1:])
		if err == nil && (len(ids) > 0) == (d.filter != "") {
			err = errors.New("set either IDs or --filter")
		}
		return err
	}
	command.Flags().StringVar(&d.filter, "filter", "", "Delete the dead letters that have this text in their error, kind or priority.")
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask for confirmation.")
	return command
}

func (d *deadLetterCommand) deleteDeadLetters(ctx context.Context, q *connectedQueue, ids []uint64) error {
	if !d.yes {
		selected := formatDeadLetters(int64(len(ids)))
		if len(ids) == 0 {
			selected = fmt.Sprintf("the dead letters with %q", d.filter)
		}
		if err := d.confirmIrreversible(fmt.Sprintf("delete %s of %s", selected, queueKind.qualifiedName(q.Queue)), q.Name); err != nil {
			return err
		}
	}
	number, err := q.DeadLetters(q.brokerName).DeleteSelected(ctx, d.selector(ids))
	if err == nil || number > 0 {
		fmt.Fprintf(d.out, "%s: deleted %s\n", queueKind.qualifiedName(q.Queue), formatDeadLetters(int64(number)))
	}
	if err == nil {
		err = checkAllExisted(number, ids)
	}
	return err
}

func formatDeadLetters(number int64) string {
	if number == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", number)
}

// confirmIrreversible asks the user to confirm an action that cannot be undone. Without a
// terminal it returns an error, and the user has to set --yes.
func (e *environment) confirmIrreversible(action, word string) error {
	if !isInteractive(e.in) {
		return fmt.Errorf("cannot %s without confirmation: set --yes, or run on a terminal", action)
	}
	fmt.Fprintf(e.errOut, "About to %s. This cannot be undone. Type %s to continue: ", action, word)
	return checkConfirmation(e.in, action, word)
}

// checkConfirmation returns an error unless the answer is the word.
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
