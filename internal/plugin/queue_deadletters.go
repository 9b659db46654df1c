package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
)

// deadLetterCommand is `kubectl yardmaster queue dead`: what is given up and kept on the broker.
type deadLetterCommand struct {
	*environment

	brokerURL, output string
	all, yes          bool
	limit, oldest     int
}

func newDeadLetterCommand(env *environment) *cobra.Command {
	d := &deadLetterCommand{environment: env}
	command := &cobra.Command{
		Use:   "dead",
		Short: "See to the dead letters of a Queue",
		Long: "See to the dead letters of a Queue: the messages that were given up.\n\n" +
			"They are on the broker, which is reached with the rights of who calls this: its Secrets are read, and where its address is a Service " +
			"of the cluster, a port is forwarded to a Pod behind it.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.PersistentFlags().StringVar(&d.brokerURL, "broker-url", "", "Where the broker is, from here. Left out: where the Queue's Secret says.")
	command.AddCommand(d.newListCommand(), d.newRequeueCommand(), d.newPurgeCommand())
	return command
}

func (d *deadLetterCommand) newSubcommand(use, short, long string, run func(ctx context.Context, q *connectedQueue) error, check func() error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: queueKind().completeSingleName(d.environment),
		RunE: func(command *cobra.Command, args []string) error {
			if err := check(); err != nil {
				return err
			}
			q, err := d.connectToBroker(command.Context(), args[0], d.brokerURL)
			if err != nil {
				return err
			}
			defer q.closeConnection()
			if err := run(command.Context(), q); err != nil {
				return fmt.Errorf("%s: %w", queueKind().qualifiedName(q.Queue), err)
			}
			return nil
		},
	}
}

func (d *deadLetterCommand) newListCommand() *cobra.Command {
	command := d.newSubcommand("list NAME", "List dead letters, the oldest first", "", d.listDeadLetters, func() error {
		if d.limit < 0 {
			return fmt.Errorf("--limit is %d, must be 0 for all, or more", d.limit)
		}
		return validateChoice("output", d.output, outputTable, outputJSON, outputYAML)
	})
	command.Aliases = []string{"ls"}
	const usual = 100
	command.Flags().IntVar(&d.limit, "limit", usual, "How many are listed at most; 0: all.")
	command.Flags().StringVarP(&d.output, "output", "o", outputTable, "What to print: table, json or yaml. Only these have the messages' content.")
	return command
}

func (d *deadLetterCommand) newRequeueCommand() *cobra.Command {
	command := d.newSubcommand("requeue NAME", "Give dead letters back to workers",
		"Give dead letters back to workers, as new: with all their attempts before them. They come after what waits already.",
		d.requeueDeadLetters, func() error {
			if d.all == (d.oldest != 0) {
				return errors.New("give either --all or --oldest")
			}
			if d.oldest < 0 {
				return fmt.Errorf("--oldest is %d, must be 1 or more", d.oldest)
			}
			return nil
		})
	command.Flags().BoolVar(&d.all, "all", false, "All that there are when the call begins.")
	command.Flags().IntVar(&d.oldest, "oldest", 0, "Only so many, the oldest.")
	return command
}

func (d *deadLetterCommand) newPurgeCommand() *cobra.Command {
	command := d.newSubcommand("purge NAME", "Drop dead letters for good",
		"Drop all dead letters for good. Without --yes it asks, if there is a terminal, and otherwise does nothing.",
		d.purgeDeadLetters, func() error {
			if !d.all {
				return errors.New("--all is needed: brokers drop all dead letters of a queue, or none")
			}
			return nil
		})
	command.Flags().BoolVar(&d.all, "all", false, "All that there are.")
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask.")
	return command
}

func (d *deadLetterCommand) listDeadLetters(ctx context.Context, q *connectedQueue) error {
	stats, err := q.Stats(ctx, q.brokerName)
	if err != nil {
		return err
	}
	letters, err := q.DeadLetters(q.brokerName).List(ctx, 0, d.limit)
	if err != nil {
		return err
	}
	if d.output != outputTable {
		return printEncoded(d.out, d.output, deadLetterOutputs(letters))
	}
	if len(letters) == 0 {
		fmt.Fprintf(d.errOut, "%s has no dead letters.\n", queueKind().qualifiedName(q.Queue))
		return nil
	}
	lines := renderDeadLetters(d.outputStyle(), letters, d.now())
	if more := stats.DeadLetters - int64(len(letters)); more > 0 {
		lines = append(lines, "", fmt.Sprintf("%d of %d are shown; --limit=0 lists all", len(letters), stats.DeadLetters))
	}
	return terminal.WriteLines(d.out, lines)
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

// deadLetterOutput is a dead letter as it is printed.
type deadLetterOutput struct {
	ID       uint64              `json:"id"`
	Priority string              `json:"priority,omitempty"`
	Error    string              `json:"error"`
	Attempts int                 `json:"attempts"`
	Origin   string              `json:"origin,omitempty"`
	Sent     *time.Time          `json:"sent,omitempty"`
	Died     time.Time           `json:"died"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Payload  []byte              `json:"payload"`
}

func deadLetterOutputs(letters []broker.DeadLetter) []deadLetterOutput {
	all := []deadLetterOutput{}
	for i := range letters {
		l := &letters[i]
		one := deadLetterOutput{ID: l.ID, Priority: l.Priority, Error: l.Error, Attempts: l.Attempts, Origin: l.MessageID, Died: l.DeadLetteredTime, Headers: l.Headers, Payload: l.Payload}
		if !l.SentTime.IsZero() {
			one.Sent = &l.SentTime
		}
		all = append(all, one)
	}
	return all
}

func (d *deadLetterCommand) requeueDeadLetters(ctx context.Context, q *connectedQueue) error {
	number, err := q.DeadLetters(q.brokerName).Requeue(ctx, d.oldest)
	if err == nil || number > 0 {
		fmt.Fprintf(d.out, "%s: %s given back to workers\n", queueKind().qualifiedName(q.Queue), formatDeadLetters(int64(number)))
	}
	return err
}

func (d *deadLetterCommand) purgeDeadLetters(ctx context.Context, q *connectedQueue) error {
	stats, err := q.Stats(ctx, q.brokerName)
	if err != nil {
		return err
	}
	if stats.DeadLetters == 0 {
		fmt.Fprintf(d.out, "%s has no dead letters\n", queueKind().qualifiedName(q.Queue))
		return nil
	}
	if !d.yes {
		if err := d.confirmIrreversible(fmt.Sprintf("drop %s of %s", formatDeadLetters(stats.DeadLetters), queueKind().qualifiedName(q.Queue)), q.Name); err != nil {
			return err
		}
	}
	if err := q.DeadLetters(q.brokerName).Purge(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s: %s dropped\n", queueKind().qualifiedName(q.Queue), formatDeadLetters(stats.DeadLetters))
	return nil
}

// formatDeadLetters is a number of dead letters.
func formatDeadLetters(number int64) string {
	if number == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", number)
}
