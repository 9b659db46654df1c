package view

import (
	"strconv"
	"strings"
)

// Action is a command of the plugin that a page offers for an object.
type Action struct {
	// ID is part of the URL; Argument distinguishes several actions with the same ID, such as by step.
	ID, Argument string
	// Label is the text of the button, and Effect describes the effect of the command.
	Label, Effect string
	// Args are the arguments of the plugin.
	Args []string
	// Destroys is set if it deletes something or stops work: the user has to type Confirm.
	Destroys bool
	Confirm  string
	// Helps is set if it most likely is the next action.
	Helps bool
}

// newAction returns the action of the command with these words, of which the first is its ID.
func newAction(e *Entry, label, effect string, words ...string) Action {
	return Action{ID: words[0], Label: label, Effect: effect, Args: objectArgs(e, words...)}
}

// destroying returns the action of a command that deletes something or stops work of the object.
func (a Action) destroying(e *Entry) Action {
	a.Destroys, a.Confirm = true, e.Name
	return a
}

// objectArgs returns the arguments of a command for an object. The name comes last, after the flags, so that it cannot be mistaken
// for a flag.
func objectArgs(e *Entry, verb ...string) []string {
	return append(append([]string{e.Kind.Path}, verb...), "--namespace="+e.Namespace, "--", e.Name)
}

// CommandLine returns the equivalent command for a user to type. The flags select the cluster.
func CommandLine(flags, args []string) string {
	words := []string{"kubectl", "yardmaster"}
	for _, flag := range flags {
		words = append(words, quote(flag))
	}
	for i, arg := range args {
		if namespace, found := strings.CutPrefix(arg, "--namespace="); found {
			words = append(words, "-n", quote(namespace))
			continue
		}
		if arg == "--" && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			continue
		}
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

func quote(word string) string {
	isPlain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !isPlain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// FindAction returns the action with the ID and argument, or nil.
func FindAction(actions []Action, id, argument string) *Action {
	for i := range actions {
		if actions[i].ID == id && actions[i].Argument == argument {
			return &actions[i]
		}
	}
	return nil
}

// MaxLogLines is the number of lines of a log that a page shows. The script has the same number.
const MaxLogLines = 2000

// LogCommand is the command that follows the log of a step of a sequence, or of a session, from its last lines, or prints all of it; nil
// for other kinds.
func LogCommand(e *Entry, step string, all bool) []string {
	flags := []string{"logs", "--color=never"}
	if !all {
		flags = append(flags, "--follow", "--tail="+strconv.Itoa(MaxLogLines))
	}
	switch e.Kind {
	case Sequences:
		if step != "" {
			flags = append(flags, "--step="+step)
		}
		return objectArgs(e, flags...)
	case Sessions:
		if !all {
			flags = append(flags, "--raw") // the page shows the events as a conversation
		}
		return objectArgs(e, flags...)
	default:
		return nil
	}
}
