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
	kube.Clients

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

func newCapacity(clients kube.Clients) *capacity {
	return &capacity{Clients: clients, admitted: map[types.NamespacedName]admission{}, verified: map[types.NamespacedName]bool{}}
}

func (c *capacity) isOpen(cached *v1alpha1.AgenticSession) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpenLocked(cached)
}

func (c *capacity) isOpenLocked(cached *v1alpha1.AgenticSession) bool {
	key := client.ObjectKeyFromObject(cached)
	known, found := c.admitted[key]
	if !found || known.uid != cached.UID {
		return cached.Status.Attempt.JobName != ""
	}
	if known.version == "" || isOlder(cached.ResourceVersion, known.version) {
		return true
	}
	delete(c.admitted, key) // the cache has caught up
	return cached.Status.Attempt.JobName != ""
}

// isOlder reports whether a version of an object is, or may be, older than another version.
func isOlder(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err != nil || order < 0
}

// reserve takes a place of a SessionRunner for a session, before its attempt is recorded. hasPlace is called while no
// other session can be admitted, with a function that reports which sessions are open; a nil hasPlace means no limit.
func (c *capacity) reserve(s *v1alpha1.AgenticSession, hasPlace func(isOpen func(*v1alpha1.AgenticSession) bool) (bool, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hasPlace != nil {
		if !c.verified[runnerKey(s)] {
			return kube.ErrStale
		}
		switch free, err := hasPlace(c.isOpenLocked); {
		case err != nil:
			return err
		case !free:
			return kube.ErrStale // the next reconciliation observes which sessions use the places
		}
	}
	c.admitted[client.ObjectKeyFromObject(s)] = admission{uid: s.UID}
	return nil
}

// settle records the outcome of the write of an admission. s is the session as it was stored. If the write failed for
// another reason than a refusal, the status may have been stored.
func (c *capacity) settle(s *v1alpha1.AgenticSession, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(s)
	if err == nil {
		c.admitted[key] = admission{s.UID, s.ResourceVersion}
		return
	}
	delete(c.admitted, key)
	wasRefused := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err)
	if !wasRefused {
		c.doubt(runnerKey(s))
	}
}

func (c *capacity) doubt(runner types.NamespacedName) {
	delete(c.verified, runner)
	c.doubts++
}

// startVerification returns a token for setVerified, which has no effect if a SessionRunner became unverified since.
func (c *capacity) startVerification() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubts
}

func (c *capacity) setVerified(runner types.NamespacedName, token int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts == token {
		c.verified[runner] = true
	}
}

func (c *capacity) isVerified(runner types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verified[runner]
}

func (c *capacity) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.admitted, key)
}

// forgetRunner forgets a deleted SessionRunner. A new SessionRunner with its name is verified again.
func (c *capacity) forgetRunner(runner types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt(runner)
}

func runnerKey(s *v1alpha1.AgenticSession) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: agenticsession.RunnerOf(s)}
}

// listContenders lists the sessions in the cache that use a SessionRunner or wait for it.
func (c *capacity) listContenders(ctx context.Context, runner types.NamespacedName, isOpen func(*v1alpha1.AgenticSession) bool) ([]agenticsession.Contender, error) {
	var list v1alpha1.AgenticSessionList
	if err := c.Client.List(ctx, &list, client.InNamespace(runner.Namespace), client.MatchingFields{contenderIndex: runner.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the sessions of SessionRunner %s: %w", runner.Name, err)
	}
	var contenders []agenticsession.Contender
	for i := range list.Items {
		s := &list.Items[i]
		if contender, contends := agenticsession.NewContender(s, agenticsession.RunnerOf(s) == runner.Name && isOpen(s), c.Clock.Now()); contends {
			contenders = append(contenders, contender)
		}
	}
	return contenders, nil
}

// observe lists the sessions that compete with this session for the places of a limited SessionRunner.
func (c *capacity) observe(ctx context.Context, o *agenticsession.Observation) error {
	if o.Session.Status.Attempt.JobName != "" || !agenticsession.HasCapacityLimit(o.Runner) {
		return nil
	}
	key := runnerKey(o.Session)
	o.Capacity.Verified = c.isVerified(key)
	var err error
	o.Capacity.Contenders, err = c.listContenders(ctx, key, c.isOpen)
	return err
}

// verify reads all sessions of the namespace from the API server. The cache must contain, at least in the same
// version, the sessions that use the SessionRunner: it then contains all sessions that earlier processes started.
func (c *capacity) verify(ctx context.Context, o *agenticsession.Observation) error {
	key := runnerKey(o.Session)
	token := c.startVerification()
	for next := ""; ; {
		var page v1alpha1.AgenticSessionList
		if err := c.Live.List(ctx, &page, client.InNamespace(key.Namespace), client.Limit(sessionsPerPage), client.Continue(next)); err != nil {
			return fmt.Errorf("listing the sessions of SessionRunner %s: %w", key.Name, err)
		}
		for i := range page.Items {
			live := &page.Items[i]
			if runnerKey(live) != key || live.Status.Attempt.JobName == "" {
				continue
			}
			cached, err := kube.GetIfExists(ctx, c.Client, live.Namespace, live.Name, &v1alpha1.AgenticSession{})
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
	c.setVerified(key, token)
	return c.observe(ctx, o)
}

func (c *capacity) reservePlace(ctx context.Context, runner *v1alpha1.SessionRunner, after *v1alpha1.AgenticSession) error {
	if !agenticsession.HasCapacityLimit(runner) {
		return c.reserve(after, nil)
	}
	return c.reserve(after, func(isOpen func(*v1alpha1.AgenticSession) bool) (bool, error) {
		contenders, err := c.listContenders(ctx, runnerKey(after), isOpen)
		return err == nil && agenticsession.HasPlace(runner, contenders, agenticsession.UserOf(after)), err
	})
}

// nextSessions maps a session that changed to the queued sessions that can start.
func (c *capacity) nextSessions(ctx context.Context, object client.Object) []reconcile.Request {
	s, ok := object.(*v1alpha1.AgenticSession)
	if !ok {
		return nil
	}
	key := runnerKey(s)
	runner, err := kube.GetIfExists(ctx, c.Client, key.Namespace, key.Name, &v1alpha1.SessionRunner{})
	if err != nil || !agenticsession.HasCapacityLimit(runner) {
		return nil
	}
	contenders, err := c.listContenders(ctx, key, c.isOpen)
	if err != nil { // queued sessions are also reconciled regularly
		return nil
	}
	var requests []reconcile.Request
	for _, name := range agenticsession.NextSessions(runner, contenders) {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: name}})
	}
	return requests
}
