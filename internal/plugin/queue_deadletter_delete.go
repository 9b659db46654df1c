package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

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
