package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/yardmaster/yardmaster/internal/plugin/render"
)

// MaxDeadLetters is how many dead letters a page shows.
const MaxDeadLetters = 50

// DeadLetterList is the arguments of the command that reads dead letters, which contain the text of the filter.
func DeadLetterList(e *Entry, filter string) []string {
	flags := []string{"dead", "list", "--output=json", fmt.Sprintf("--limit=%d", MaxDeadLetters)}
	if filter != "" {
		flags = append(flags, "--filter="+filter)
	}
	return objectArgs(e, flags...)
}

// DeadLetter is a dead letter in the output of the command.
type DeadLetter render.DeadLetter

// Clean returns the dead letter without control characters.
func (l *DeadLetter) Clean() *DeadLetter {
	clean := *l
	clean.Priority, clean.Error, clean.Origin, clean.Headers = cleanLine(l.Priority), cleanLine(l.Error), cleanLine(l.Origin), map[string][]string{}
	for name, values := range l.Headers {
		for _, value := range values {
			clean.Headers[cleanLine(name)] = append(clean.Headers[cleanLine(name)], cleanLine(value))
		}
	}
	clean.Payload = []byte(cleanText(string(l.Payload)))
	return &clean
}

// DeadLetterActions are the actions for the dead letters of a Queue.
func DeadLetterActions(e *Entry) []Action {
	return []Action{
		{ID: "requeue-oldest", Label: "Requeue the oldest", Effect: "Requeues the oldest dead letter as a new message, at the end of the queue.", Args: objectArgs(e, "dead", "requeue", "--oldest=1")},
		{ID: "requeue-10", Label: "Requeue the 10 oldest", Effect: "Requeues the 10 oldest dead letters as new messages.", Args: objectArgs(e, "dead", "requeue", "--oldest=10")},
		{ID: "requeue-all", Label: "Requeue all", Effect: "Requeues all dead letters as new messages.", Args: objectArgs(e, "dead", "requeue", "--all")},
		{
			ID: "purge", Label: "Delete all", Effect: "Deletes all dead letters. This cannot be undone.", Destroys: true, Confirm: e.Name,
			Args: objectArgs(e, "dead", "purge", "--all", "--yes"),
		},
	}
}

// The IDs of actions for some dead letters. Their argument is a list of IDs.
const (
	RequeueLetters = "requeue-selected"
	DeleteLetters  = "delete-selected"
)

// DeadLetterSelection returns the action for the selected dead letters, or nil. The argument is a list of their IDs with commas, or a
// text in their error, kind or priority.
func DeadLetterSelection(e *Entry, id, argument string) *Action {
	if id != RequeueLetters && id != DeleteLetters {
		return FindAction(MatchingLetterActions(e, argument), id, argument)
	}
	ids := strings.Split(argument, ",")
	if len(ids) > MaxDeadLetters {
		return nil
	}
	for _, text := range ids {
		if number, err := strconv.ParseUint(text, 10, 64); err != nil || number == 0 || strconv.FormatUint(number, 10) != text {
			return nil
		}
	}
	selected := countOf(int64(len(ids)), "dead letter")
	if id == RequeueLetters {
		return &Action{
			ID: id, Argument: argument, Label: "Requeue " + selected, Effect: "Requeues " + selected + " as new messages, at the end of the queue: " + strings.Join(ids, ", ") + ".",
			Args: append(objectArgs(e, "dead", "requeue"), ids...),
		}
	}
	return &Action{
		ID: id, Argument: argument, Label: "Delete " + selected, Effect: "Deletes " + selected + ": " + strings.Join(ids, ", ") + ". This cannot be undone.",
		Args: append(objectArgs(e, "dead", "delete", "--yes"), ids...), Destroys: true, Confirm: e.Name,
	}
}

// MatchingLetterActions are the actions for all dead letters with a text, which may be more than a page shows. There is no action if the
// text has characters that a page cannot show, because the user could not see the effect of the command.
func MatchingLetterActions(e *Entry, filter string) []Action {
	if filter == "" || cleanLine(filter) != filter {
		return nil
	}
	effect := fmt.Sprintf(" all dead letters with %q in their error, kind or priority, also those that this page does not show.", filter)
	return []Action{{
		ID: "requeue-matching", Argument: filter, Label: "Requeue all that match", Effect: "Requeues" + effect, Args: objectArgs(e, "dead", "requeue", "--filter="+filter),
	}, {
		ID: "delete-matching", Argument: filter, Label: "Delete all that match", Effect: "Deletes" + effect + " This cannot be undone.",
		Args: objectArgs(e, "dead", "delete", "--filter="+filter, "--yes"), Destroys: true, Confirm: e.Name,
	}}
}
