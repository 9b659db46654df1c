package controller

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// sessionsPerPage limits the memory of a live list of sessions, each of which may have a prompt of 64 KiB.
const sessionsPerPage = 50

// capacity remembers which sessions this process started, until the cache shows it: otherwise several sessions would
// find the same place of their SessionRunner free.
//
// A SessionRunner is verified once the cache contains all sessions that earlier processes started, until a write has an
// unknown outcome.
type capacity struct {
	mu       sync.Mutex
	admitted map[types.NamespacedName]admission
	verified map[types.NamespacedName]bool
	// doubts is how often a SessionRunner became unverified: a verification that began before does not count.
	doubts int
}

// admission of a session. version is its resourceVersion with the open attempt; empty while the status is being
// written.
type admission struct {
	uid     types.UID
	version string
}

func newCapacity() *capacity {
	return &capacity{admitted: map[types.NamespacedName]admission{}, verified: map[types.NamespacedName]bool{}}
}

func (a *capacity) isOpen(cached *v1alpha1.AgenticSession) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isOpenLocked(cached)
}

func (a *capacity) isOpenLocked(cached *v1alpha1.AgenticSession) bool {
	key := client.ObjectKeyFromObject(cached)
	known, found := a.admitted[key]
	if !found || known.uid != cached.UID {
		return cached.Status.Attempt.JobName != ""
	}
	if known.version == "" || isOlder(cached.ResourceVersion, known.version) {
		return true
	}
	delete(a.admitted, key) // the cache has caught up
	return cached.Status.Attempt.JobName != ""
}

// isOlder reports whether a version of an object is, or may be, older than another version.
func isOlder(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err != nil || order < 0
}

// reserve takes a place of a SessionRunner for a session, before its attempt is recorded. hasPlace is called while no
// other session can be admitted, with a function that reports which sessions are open; a nil hasPlace means no limit.
func (a *capacity) reserve(s *v1alpha1.AgenticSession, hasPlace func(isOpen func(*v1alpha1.AgenticSession) bool) (bool, error)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if hasPlace != nil {
		if !a.verified[runnerKey(s)] {
			return kube.ErrStale
		}
		switch free, err := hasPlace(a.isOpenLocked); {
		case err != nil:
			return err
		case !free:
			return kube.ErrStale // the next reconciliation observes which sessions use the places
		}
	}
	a.admitted[client.ObjectKeyFromObject(s)] = admission{uid: s.UID}
	return nil
}

// settle records the outcome of the write of an admission. s is the session as it was stored. If the write failed for
// another reason than a refusal, the status may have been stored.
func (a *capacity) settle(s *v1alpha1.AgenticSession, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	if err == nil {
		a.admitted[key] = admission{s.UID, s.ResourceVersion}
		return
	}
	delete(a.admitted, key)
	wasRefused := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err)
	if !wasRefused {
		a.doubt(runnerKey(s))
	}
}

func (a *capacity) doubt(runner types.NamespacedName) {
	delete(a.verified, runner)
	a.doubts++
}

// startVerification returns a token for verify, which has no effect if a SessionRunner became unverified since.
func (a *capacity) startVerification() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doubts
}

func (a *capacity) verify(runner types.NamespacedName, token int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.doubts == token {
		a.verified[runner] = true
	}
}

func (a *capacity) isVerified(runner types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.verified[runner]
}

func (a *capacity) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.admitted, key)
}

// forgetRunner forgets a deleted SessionRunner. A new SessionRunner with its name is verified again.
func (a *capacity) forgetRunner(runner types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt(runner)
}

func runnerKey(s *v1alpha1.AgenticSession) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: agenticsession.RunnerOf(s)}
}

// listContenders lists the sessions in the cache that use a SessionRunner or wait for it.
func (r *Reconciler) listContenders(ctx context.Context, runner types.NamespacedName, isOpen func(*v1alpha1.AgenticSession) bool) ([]agenticsession.Contender, error) {
	var list v1alpha1.AgenticSessionList
	if err := r.Client.List(ctx, &list, client.InNamespace(runner.Namespace), client.MatchingFields{contenderIndex: runner.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the sessions of SessionRunner %s: %w", runner.Name, err)
	}
	var contenders []agenticsession.Contender
	for i := range list.Items {
		s := &list.Items[i]
		if contender, contends := agenticsession.NewContender(s, agenticsession.RunnerOf(s) == runner.Name && isOpen(s), r.Clock.Now()); contends {
			contenders = append(contenders, contender)
		}
	}
	return contenders, nil
}

// observeCapacity lists the sessions that compete with this session for the places of a limited SessionRunner.
func (r *Reconciler) observeCapacity(ctx context.Context, o *agenticsession.Observation) error {
	if o.Session.Status.Attempt.JobName != "" || !agenticsession.HasCapacityLimit(o.Runner) {
		return nil
	}
	key := runnerKey(o.Session)
	o.Capacity.Verified = r.capacity.isVerified(key)
	var err error
	o.Capacity.Contenders, err = r.listContenders(ctx, key, r.capacity.isOpen)
	return err
}

// verifyCapacity reads all sessions of the namespace from the API server. The cache must contain, at least in the same
// version, the sessions that use the SessionRunner: it then contains all sessions that earlier processes started.
func (r *Reconciler) verifyCapacity(ctx context.Context, o *agenticsession.Observation) error {
	key := runnerKey(o.Session)
	token := r.capacity.startVerification()
	for next := ""; ; {
		var page v1alpha1.AgenticSessionList
		if err := r.Live.List(ctx, &page, client.InNamespace(key.Namespace), client.Limit(sessionsPerPage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing the sessions of SessionRunner %s: %w", key.Name, err)
		}
		for i := range page.Items {
			live := &page.Items[i]
			if runnerKey(live) != key || live.Status.Attempt.JobName == "" {
				continue
			}
			cached, err := kube.GetIfExists(ctx, r.Client, live.Namespace, live.Name, &v1alpha1.AgenticSession{})
			if err != nil {
				return err
			}
			if cached == nil || isOlder(cached.ResourceVersion, live.ResourceVersion) {
				return kube.ErrStale
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	r.capacity.verify(key, token)
	return r.observeCapacity(ctx, o)
}

func (r *Reconciler) reservePlace(ctx context.Context, runner *v1alpha1.SessionRunner, after *v1alpha1.AgenticSession) error {
	if !agenticsession.HasCapacityLimit(runner) {
		return r.capacity.reserve(after, nil)
	}
	return r.capacity.reserve(after, func(isOpen func(*v1alpha1.AgenticSession) bool) (bool, error) {
		contenders, err := r.listContenders(ctx, runnerKey(after), isOpen)
		return err == nil && agenticsession.HasPlace(runner, contenders, agenticsession.UserOf(after)), err
	})
}

// nextSessions maps a session that changed to the queued sessions that can start.
func (r *Reconciler) nextSessions(ctx context.Context, object client.Object) []reconcile.Request {
	s, ok := object.(*v1alpha1.AgenticSession)
	if !ok {
		return nil
	}
	key := runnerKey(s)
	runner, err := kube.GetIfExists(ctx, r.Client, key.Namespace, key.Name, &v1alpha1.SessionRunner{})
	if err != nil || !agenticsession.HasCapacityLimit(runner) {
		return nil
	}
	contenders, err := r.listContenders(ctx, key, r.capacity.isOpen)
	if err != nil { // queued sessions are also reconciled regularly
		return nil
	}
	var requests []reconcile.Request
	for _, name := range agenticsession.NextSessions(runner, contenders) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: name}})
	}
	return requests
}
