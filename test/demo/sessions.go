package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/render"
	"github.com/yardmaster/yardmaster/test/demo/page"
	"github.com/yardmaster/yardmaster/test/demo/scenario"
)

type sessionScenario struct {
	*demoEnvironment

	section  *page.Section
	sessions []*runningSession
}

// runningSession is a session and the demo's progress with it.
type runningSession struct {
	scenario.SessionExample
	current     *v1alpha1.AgenticSession
	actionsDone int
	phaseSince  time.Time // when the demo first saw the current phase
}

func (a *sessionScenario) begin() *page.Section {
	a.section = a.page.NewSection("AgenticSession", "agents as hardened Jobs: examples/agenticsession in namespace "+sessionsNamespace)
	return a.section
}

// run runs sessions, stops and restarts one, and checks how they end.
func (a *sessionScenario) run(ctx context.Context) (result string, err error) {
	for _, step := range []func(context.Context) error{a.applySessions, a.checkRefusal, a.followSessions, a.checkOutcomes} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("AgenticSession: %d sessions ended: with a result and its cost, after a restart in the kept workspace, and at the time limit. An invalid one was refused.",
		len(a.sessions)), nil
}

func (a *sessionScenario) showDetails(ctx context.Context) {
	a.page.PrintTitle("AgenticSessions in kubectl")
	a.runKubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions")
	a.runKubectl(ctx, "-n", sessionsNamespace, "events", "--for", "agenticsession/pause")
}

func (a *sessionScenario) showState(ctx context.Context, _ error) {
	a.page.PrintTitle("AgenticSessions")
	a.runKubectl(ctx, "-n", sessionsNamespace, "get", "agenticsessions,jobs,pods", "-o", "wide")
	a.runKubectl(ctx, "-n", sessionsNamespace, "events")
}

func (a *sessionScenario) applySessions(ctx context.Context) error {
	if err := a.recreateNamespace(ctx, sessionsNamespace); err != nil {
		return err
	}
	if err := a.runKubectlQuietly(ctx, "-n", sessionsNamespace, "apply", "-f", "examples/"+scenario.SessionsFile); err != nil {
		return err
	}
	for _, s := range scenario.SessionExamples() {
		a.sessions = append(a.sessions, &runningSession{SessionExample: s, current: &v1alpha1.AgenticSession{}})
	}
	return nil
}

func (a *sessionScenario) checkRefusal(ctx context.Context) error {
	object, err := readManifest(scenario.RefusedSessionFile, sessionsNamespace)
	if err != nil {
		return err
	}
	a.section.Log("$ kubectl -n %s apply -f examples/%s", sessionsNamespace, scenario.RefusedSessionFile)
	return checkRefusal(a.section, scenario.RefusedSessionFile, scenario.RefusedSessionMessage, a.create(ctx, object))
}

func (a *sessionScenario) followSessions(ctx context.Context) error {
	return a.waitUntil(ctx, "all sessions to finish", func(ctx context.Context) (bool, error) {
		err := a.refreshSessions(ctx)
		return !slices.ContainsFunc(a.sessions, func(s *runningSession) bool { return !s.IsFinished(s.current) }), err
	})
}

func (a *sessionScenario) refreshSessions(ctx context.Context) error {
	shown := make([]*v1alpha1.AgenticSession, 0, len(a.sessions))
	for _, s := range a.sessions {
		before := s.current
		s.current = &v1alpha1.AgenticSession{}
		if err := a.client.Get(ctx, client.ObjectKey{Namespace: sessionsNamespace, Name: s.Name}, s.current); err != nil {
			s.current = before
			return err
		}
		if s.phaseSince.IsZero() || before.Status.Phase != s.current.Status.Phase {
			s.phaseSince = time.Now()
		}
		shown = append(shown, s.current)
		for _, change := range render.SessionChanges(before, s.current) {
			a.section.Log("%-6s %s", s.Name, change.Text)
		}
	}
	a.section.Draw(render.SessionTable(a.page.Style, shown, time.Now()).Lines(false))
	return a.applyDueActions(ctx)
}

func (a *sessionScenario) applyDueActions(ctx context.Context) error {
	for _, s := range a.sessions {
		action := s.DueAction(s.current, s.actionsDone, time.Since(s.phaseSince))
		if action == nil {
			continue
		}
		a.section.Act(action.Description, action.KubectlCommand(sessionsNamespace, "agenticsession", s.Name))
		if err := a.client.Patch(ctx, s.current.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(action.Patch))); err != nil {
			return fmt.Errorf("patching %s: %w", s.Name, err)
		}
		s.actionsDone++
	}
	return nil
}

// checkOutcomes compares how each session ended with what is expected.
func (a *sessionScenario) checkOutcomes(context.Context) error {
	var errs []error
	for _, s := range a.sessions {
		for _, line := range render.SessionDetail(a.page.Style, s.current, time.Now()) {
			a.section.Log("%s", line)
		}
		for _, mismatch := range s.Mismatches(s.current) {
			errs = append(errs, fmt.Errorf("%s: %s", s.Name, mismatch))
		}
	}
	return errors.Join(errs...)
}
