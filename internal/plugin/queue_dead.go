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

// deadCommand is `kubectl yardmaster queue dead`: what is given up and kept on the broker.
type deadCommand struct {
	*environment

	address, output string
	all, yes        bool
	limit, oldest   int
}

func newDead(env *environment) *cobra.Command {
	d := &deadCommand{environment: env}
	command := &cobra.Command{
		Use:   "dead",
		Short: "See to the dead letters of a Queue",
		Long: "See to the dead letters of a Queue: the messages that were given up.\n\n" +
			"They are on the broker, which is reached with the rights of who calls this: its Secrets are read, and where its address is a Service " +
			"of the cluster, a port is forwarded to a Pod behind it.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.PersistentFlags().StringVar(&d.address, "broker-url", "", "Where the broker is, from here. Left out: where the Queue's Secret says.")
	command.AddCommand(d.listing(), d.requeueing(), d.purging())
	return command
}

func (d *deadCommand) command(use, short, long string, run func(ctx context.Context, q *brokerQueue) error, check func() error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: queueKind().completeName(d.environment),
		RunE: func(command *cobra.Command, args []string) error {
			if err := check(); err != nil {
				return err
			}
			q, err := d.reach(command.Context(), args[0], d.address)
			if err != nil {
				return err
			}
			defer q.close()
			if err := run(command.Context(), q); err != nil {
				return fmt.Errorf("%s: %w", queueKind().called(q.Queue), err)
			}
			return nil
		},
	}
}

func (d *deadCommand) listing() *cobra.Command {
	command := d.command("list NAME", "List dead letters, the oldest first", "", d.list, func() error {
		if d.limit < 0 {
			return fmt.Errorf("--limit is %d, must be 0 for all, or more", d.limit)
		}
		return oneOf("output", d.output, outputTable, outputJSON, outputYAML)
	})
	command.Aliases = []string{"ls"}
	const usual = 100
	command.Flags().IntVar(&d.limit, "limit", usual, "How many are listed at most; 0: all.")
	command.Flags().StringVarP(&d.output, "output", "o", outputTable, "What to print: table, json or yaml. Only these have the messages' content.")
	return command
}

func (d *deadCommand) requeueing() *cobra.Command {
	command := d.command("requeue NAME", "Give dead letters back to workers",
		"Give dead letters back to workers, as new: with all their attempts before them. They come after what waits already.",
		d.requeue, func() error {
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

func (d *deadCommand) purging() *cobra.Command {
	command := d.command("purge NAME", "Drop dead letters for good",
		"Drop all dead letters for good. Without --yes it asks, if there is a terminal, and otherwise does nothing.",
		d.purge, func() error {
			if !d.all {
				return errors.New("--all is needed: brokers drop all dead letters of a queue, or none")
			}
			return nil
		})
	command.Flags().BoolVar(&d.all, "all", false, "All that there are.")
	command.Flags().BoolVar(&d.yes, "yes", false, "Do not ask.")
	return command
}

func (d *deadCommand) list(ctx context.Context, q *brokerQueue) error {
	figures, err := q.Stats(ctx, q.on)
	if err != nil {
		return err
	}
	letters, err := q.DeadLetters(q.on).List(ctx, 0, d.limit)
	if err != nil {
		return err
	}
	if d.output != outputTable {
		return encode(d.out, d.output, shown(letters))
	}
	if len(letters) == 0 {
		fmt.Fprintf(d.errOut, "%s has no dead letters.\n", queueKind().called(q.Queue))
		return nil
	}
	lines := letterRows(d.style(), letters, d.now())
	if more := figures.DeadLetters - int64(len(letters)); more > 0 {
		lines = append(lines, "", fmt.Sprintf("%d of %d are shown; --limit=0 lists all", len(letters), figures.DeadLetters))
	}
	return terminal.Lines(d.out, lines)
}

func letterRows(s terminal.Style, letters []broker.DeadLetter, now time.Time) []string {
	rows := [][]string{{"ID", "DIED", "PRIORITY", "ATTEMPTS", "BYTES", "ERROR"}}
	for i := range letters {
		l := &letters[i]
		rows = append(rows, []string{
			strconv.FormatUint(l.ID, 10), duration.HumanDuration(max(0, now.Sub(l.DeadLetteredTime))), terminal.Clean(l.Priority), strconv.Itoa(l.Attempts),
			strconv.Itoa(len(l.Payload)), terminal.Clean(l.Error),
		})
	}
	lines := terminal.Columns(rows)
	lines[0] = s.Paint(terminal.Dim, lines[0])
	return lines
}

// letter is a dead letter as it is printed.
type letter struct {
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

func shown(letters []broker.DeadLetter) []letter {
	all := []letter{}
	for i := range letters {
		l := &letters[i]
		one := letter{ID: l.ID, Priority: l.Priority, Error: l.Error, Attempts: l.Attempts, Origin: l.MessageID, Died: l.DeadLetteredTime, Headers: l.Headers, Payload: l.Payload}
		if !l.SentTime.IsZero() {
			one.Sent = &l.SentTime
		}
		all = append(all, one)
	}
	return all
}

func (d *deadCommand) requeue(ctx context.Context, q *brokerQueue) error {
	number, err := q.DeadLetters(q.on).Requeue(ctx, d.oldest)
	if err == nil || number > 0 {
		fmt.Fprintf(d.out, "%s: %s given back to workers\n", queueKind().called(q.Queue), counted(int64(number)))
	}
	return err
}

func (d *deadCommand) purge(ctx context.Context, q *brokerQueue) error {
	figures, err := q.Stats(ctx, q.on)
	if err != nil {
		return err
	}
	if figures.DeadLetters == 0 {
		fmt.Fprintf(d.out, "%s has no dead letters\n", queueKind().called(q.Queue))
		return nil
	}
	if !d.yes {
		if err := d.confirm(fmt.Sprintf("drop %s of %s", counted(figures.DeadLetters), queueKind().called(q.Queue)), q.Name); err != nil {
			return err
		}
	}
	if err := q.DeadLetters(q.on).Purge(ctx); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "%s: %s dropped\n", queueKind().called(q.Queue), counted(figures.DeadLetters))
	return nil
}

// counted is a number of dead letters.
func counted(number int64) string {
	if number == 1 {
		return "1 dead letter"
	}
	return fmt.Sprintf("%d dead letters", number)
}
