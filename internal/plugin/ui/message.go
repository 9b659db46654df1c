package ui

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

// The limits of a message, which are the session's, and of the encoded form that contains it.
const (
	maxMessageBytes     = 64 << 10
	maxMessageFormBytes = 3*maxMessageBytes + 1<<10
)

// talkEntry returns the session of a page if it accepts messages, or nil.
func (s *Server) talkEntry(place *location) *view.Entry {
	entry, _ := s.entry(place)
	if entry == nil {
		return nil
	}
	if session, isSession := entry.Object.(*v1alpha1.AgenticSession); !isSession || !view.AcceptsMessages(session) {
		return nil
	}
	return entry
}

func (s *Server) serveMessage(w http.ResponseWriter, r *http.Request, path string) {
	place := parseLocation(path, nil)
	if place == nil || place.view != viewObject || r.Method != http.MethodPost {
		s.writeMessage(w, r, http.StatusNotFound, "Not found", "There is no such page.")
		return
	}
	entry := s.talkEntry(place)
	if entry == nil {
		s.writeMessage(w, r, http.StatusConflict, "Not possible", "The session is not interactive, or does not run.")
		return
	}
	status, problem := http.StatusBadRequest, "The message is empty, or longer than 64 KiB."
	r.Body = http.MaxBytesReader(w, r.Body, maxMessageFormBytes)
	// Browsers send line ends as CR LF.
	if err := r.ParseForm(); err == nil {
		message := strings.ReplaceAll(r.PostForm.Get("message"), "\r\n", "\n")
		if strings.TrimSpace(message) != "" && len(message) <= maxMessageBytes {
			status, problem = http.StatusOK, s.sendMessage(r.Context(), entry, message)
		}
	}
	s.writeDialog(w, r, status, "Message", page.MessageOutcome(s.links, entry, problem))
}

// sendMessage returns once the agent works on the message, which is when the command prints something: the agent continues without a
// client, and the log shows its work. It returns why the message was not sent; empty if it was.
func (s *Server) sendMessage(ctx context.Context, entry *view.Entry, message string) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, errOut := &firstWrite{started: cancel}, &boundedBuffer{}
	code := s.Run(ctx, view.AttachCommand(entry), strings.NewReader(message), out, errOut)
	switch {
	case out.has.Load() || code == 0:
		return ""
	case ctx.Err() != nil:
		return "The agent did not start to work on the message within a minute. The log shows whether it does."
	default:
		return "The command failed: " + strings.TrimSpace(cleanLines(errOut.Bytes()))
	}
}

// firstWrite reports whether something was written.
type firstWrite struct {
	// started is called at each write.
	started func()
	has     atomic.Bool
}

// Write implements io.Writer.
func (f *firstWrite) Write(p []byte) (int, error) {
	if len(p) > 0 {
		f.has.Store(true)
		f.started()
	}
	return len(p), nil
}
