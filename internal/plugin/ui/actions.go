package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/page"
	"github.com/yardmaster/yardmaster/internal/plugin/ui/view"
)

func (s *Server) serveAction(w http.ResponseWriter, r *http.Request, path string) {
	place := parseLocation(path, nil)
	if place == nil || place.view != viewObject {
		s.writeMessage(w, r, http.StatusNotFound, "Not found", "There is no such action.")
		return
	}
	entry, _ := s.entry(place)
	var action *view.Action
	if entry != nil {
		action = findAction(entry, r.URL.Query(), s.Now())
	}
	if action == nil {
		text := "This is not possible now: the object has changed, or was deleted."
		if id := r.URL.Query().Get("do"); id == view.RequeueLetters || id == view.DeleteLetters {
			text = "Select at least one dead letter of the list."
		}
		s.writeMessage(w, r, http.StatusConflict, "Not possible", text)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	switch {
	case r.Method != http.MethodPost:
		s.writeDialog(w, r, http.StatusOK, action.Label, page.Confirmation(s.links, entry, action, ""))
	case r.ParseForm() != nil:
		s.writeMessage(w, r, http.StatusBadRequest, action.Label, "The form cannot be read.")
	case action.Destroys && r.PostForm.Get("confirm") != action.Confirm:
		s.writeDialog(w, r, http.StatusBadRequest, action.Label, page.Confirmation(s.links, entry, action, "Nothing was done: type "+action.Confirm+" to continue."))
	default:
		result := s.runCommand(r.Context(), action.Args)
		text := cleanLines(append(result.output, result.errors...))
		s.writeDialog(w, r, http.StatusOK, action.Label, page.Outcome(s.links, action.Label, action.Args, result.code == 0, text, s.links.Object(entry, "")))
	}
}

// findAction returns the action that a query selects; nil if it is not possible now.
func findAction(entry *view.Entry, query url.Values, now time.Time) *view.Action {
	var actions []view.Action
	switch object := entry.Object.(type) {
	case *v1alpha1.SequentialJob:
		sequence := view.NewSequence(entry, object, nil, now)
		actions = sequence.Actions
		for i := range sequence.Steps {
			actions = append(actions, sequence.Steps[i].Actions...)
		}
	case *v1alpha1.AgenticSession:
		actions = view.NewSession(entry, object, now).Actions
	case *v1alpha1.Queue:
		actions = slices.Concat(view.NewQueue(entry, object, nil, &view.Past{}).Actions, view.DeadLetterActions(entry))
	case *v1alpha1.WorkerPool:
		actions = view.NewPool(entry, object, nil, &view.Past{}, now).Actions
	case *v1alpha1.Schedule:
		actions = view.NewSchedule(entry, object, &view.State{}, now).Actions
	}
	id, argument := query.Get("do"), query.Get("arg")
	if action := view.FindAction(actions, id, argument); action != nil {
		return action
	}
	switch {
	case entry.Kind == view.Pools && id == view.DrainWorkerID:
		return view.DrainWorker(entry, argument)
	case entry.Kind != view.Queues:
		return nil
	}
	if ids := query["id"]; len(ids) > 0 { // the checked boxes of the form
		argument = strings.Join(ids, ",")
	}
	return view.DeadLetterSelection(entry, id, argument)
}

func (s *Server) serveExplanation(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	namespace, name := query.Get("namespace"), query.Get("name")
	if !isName(namespace) || !isName(name) || !s.Store.Scope().Contains(namespace) {
		s.writeMessage(w, r, http.StatusNotFound, "Not found", "There is no such Job.")
		return
	}
	args := view.ExplainCommand(namespace, name)
	result := s.runCommand(r.Context(), args)
	text := cleanLines(append(result.output, result.errors...))
	s.writeDialog(w, r, http.StatusOK, "Explanation", page.Outcome(s.links, "Why Job "+name+" is stale", args, result.problem() == "", text, s.links.Base+"/stale"))
}

// isName reports whether the text can be the name of an object, and is no flag.
func isName(text string) bool {
	const maxLength = 253
	if text == "" || len(text) > maxLength || text[0] == '-' {
		return false
	}
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' {
			return false
		}
	}
	return true
}
