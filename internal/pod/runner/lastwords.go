package runner

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yardmaster/yardmaster/internal/pod/agentprofile"
)

const (
	// maxSentenceBytes bounds the sentence with which an agent ends.
	maxSentenceBytes = 512
	// errorAge is how long an error is the reason for the end of an agent that writes on: an agent that continues its work has
	// overcome it. Standard output and standard error arrive in any order.
	errorAge = 2 * time.Second
)

// errorLine matches lines in which programs name an error. Traces of the stack, hints and versions often follow them.
var errorLine = regexp.MustCompile(`(?i)\b(error|exception|fatal|panic|panicked|failed|failure|denied|refused|cannot|could not|not found|too long|too low|exceeded|segmentation fault)\b|[a-z](error|exception)\b`)

// lastWords are what an agent wrote last, for the reason of its end.
type lastWords struct {
	sentence, problem string
	problemTime       time.Time
}

func (w *lastWords) hear(event *agentprofile.Event, now time.Time) {
	switch event.Type {
	case agentprofile.EventText, agentprofile.EventResult, agentprofile.EventRetry, agentprofile.EventToolCall:
		if now.Sub(w.problemTime) > errorAge {
			w.problem = ""
		}
	case agentprofile.EventOutput, agentprofile.EventError:
	default:
		return
	}
	for line := range strings.Lines(event.Text) {
		isTrace := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		if line = strings.TrimSpace(line); line == "" || isTrace {
			continue
		}
		w.sentence = cut(line, maxSentenceBytes)
		isProblem := event.Type == agentprofile.EventError || event.Type == agentprofile.EventOutput && errorLine.MatchString(line)
		if isProblem {
			w.problem, w.problemTime = w.sentence, now
		}
	}
}

// reason returns the last problem, or else the last sentence.
func (w *lastWords) reason() string { return cmp.Or(w.problem, w.sentence, "it reported no reason") }

// describeSignal returns the number and the name of a signal, as in "signal 11 (SIGSEGV)".
func describeSignal(signal syscall.Signal) string {
	if name := unix.SignalName(signal); name != "" {
		return fmt.Sprintf("signal %d (%s)", int(signal), name)
	}
	return fmt.Sprintf("signal %d", int(signal))
}

// oneLine returns the lines of git in one, as the status of a session shows them.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }
