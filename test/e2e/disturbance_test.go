//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func newCertificate(t *testing.T) {
	before := leader(t)
	calls := callWebhook(t)
	emptied := certificateSecret(t)
	original := emptied.DeepCopy()
	emptied.Data = nil
	must(t, cluster.Patch(t.Context(), emptied, client.MergeFrom(original)))
	untilServedAnew(t, original.Data["ca.crt"])

	// The operator is not allowed to create Secrets. Without its Secret, it works again after
	// the manifests are applied again.
	original = certificateSecret(t)
	must(t, cluster.Delete(t.Context(), original))
	must(t, webhookServes(t.Context()))
	must(t, cluster.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificates, Namespace: operatorNamespace}}))
	untilServedAnew(t, original.Data["ca.crt"])
	// The webhook cannot be called for a moment: the API server trusts the new CA before the
	// operator uses the new certificate.
	t.Logf("%d requests failed during the changes: %v", len(calls.end()), errors.Join(calls.end()...))

	after := leader(t)
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount {
		t.Error("the operator was restarted")
	}
}

// untilServedAnew waits until the webhook serves a certificate that is signed by another CA,
// and the API server trusts that CA.
func untilServedAnew(t *testing.T, oldCA []byte) {
	t.Helper()
	start := time.Now()
	var ca []byte
	eventually(t, "a new CA that the API server trusts", func() bool {
		ca = certificateSecret(t).Data["ca.crt"]
		return len(ca) > 0 && !bytes.Equal(ca, oldCA) && bytes.Equal(ca, trustedCA(t))
	})
	address := forward(t, "service/yardmaster-webhook", "443")
	eventually(t, "the new certificate to be served", func() bool { return serves(t, address, ca) })
	eventually(t, "the webhook to be called", func() bool { return webhookServes(t.Context()) == nil })
	took := since(start)
	if limit := 30 * time.Second; took > limit {
		t.Errorf("a new certificate was served after %v, want at most %v", took, limit)
	}
	t.Logf("a new certificate was served after %v", took)
}

// serves reports whether the certificate of the webhook at address is signed by this CA.
func serves(t *testing.T, address string, ca []byte) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the CA is not a certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "yardmaster-webhook." + operatorNamespace + ".svc"}}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func rollingRestart(t *testing.T) {
	s := createSequence(t, countdown("restarted", 8))
	calls := callWebhook(t)
	before := lease(t)

	restarted := operator(t)
	original := restarted.DeepCopy()
	restarted.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
	must(t, cluster.Patch(t.Context(), restarted, client.MergeFrom(original)))
	must(t, waitForOperator(t.Context()))
	after := lease(t)
	if holder(after) == holder(before) {
		t.Fatal("the leader did not change")
	}
	// The leader stops up to 2 s after its last renewal, and the other replica tries to acquire
	// the Lease up to 2.2 times 2 s later. A Lease that is not released expires after 15 s.
	leaderless := after.Spec.AcquireTime.Sub(calls.lastRenewal(holder(before)))
	if limit := 10 * time.Second; leaderless > limit {
		t.Errorf("no replica led for %v, want at most %v", leaderless, limit)
	}
	t.Logf("the new leader acquired the Lease %v after the last renewal by the old one", leaderless.Round(often))

	for _, err := range calls.end() {
		t.Errorf("a request failed: %v", err)
	}
	s.untilPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// caller calls the webhook repeatedly, and records the renewals of the Lease.
type caller struct {
	stop   context.CancelFunc
	done   chan struct{}
	errs   []error
	leases chan map[string]time.Time
}

func callWebhook(t *testing.T) *caller {
	ctx, stop := context.WithCancel(t.Context())
	c := &caller{stop: stop, done: make(chan struct{}), leases: make(chan map[string]time.Time, 1)}
	c.leases <- map[string]time.Time{}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.call(ctx)
		}
	}()
	t.Cleanup(func() { c.end() })
	return c
}

func (c *caller) call(ctx context.Context) {
	if err := webhookServes(ctx); err != nil && ctx.Err() == nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
	}
	lease, err := readLease(ctx)
	if err == nil && holder(lease) != "" {
		renewals := <-c.leases
		renewals[holder(lease)] = lease.Spec.RenewTime.Time
		c.leases <- renewals
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// lastRenewal returns the time of the last recorded renewal by a holder.
func (c *caller) lastRenewal(holder string) time.Time {
	renewals := <-c.leases
	defer func() { c.leases <- renewals }()
	return renewals[holder]
}

// end ends the calls and returns those that failed.
func (c *caller) end() []error {
	c.stop()
	<-c.done
	return c.errs
}

func failOver(t *testing.T) {
	changeOperator(t, func(spec *appsv1.DeploymentSpec) { spec.Replicas = new(int32(2)) })
	var stories []*story
	for range 4 {
		stories = append(stories, createSequence(t, countdown("fail-over", 10)))
	}
	stories[0].podOf("t-9")

	hung := leader(t)
	restarts := hung.Status.ContainerStatuses[0].RestartCount
	before := holder(lease(t))
	start := time.Now()
	signal(t, hung, operatorName, "STOP")
	untilAnotherLeads(t, before)
	t.Logf("another replica led %v after the leader hung", since(start))
	if leader(t).UID == hung.UID {
		t.Error("the hung Pod leads again")
	}
	// The resumed process assumes that it still leads, and exits when it detects that it does not.
	signal(t, hung, operatorName, "CONT")
	eventually(t, "the old leader to restart", func() bool {
		return exists(t, hung) && hung.Status.ContainerStatuses[0].RestartCount > restarts
	})

	// The kubelet restarts a killed process at once, so it can become the leader again.
	before = holder(lease(t))
	start = time.Now()
	signal(t, leader(t), operatorName, "KILL")
	untilAnotherLeads(t, before)
	t.Logf("another replica led %v after the leader was killed", since(start))
	if allEnded(stories) {
		t.Error("the sequences ended before the failover: this test needs longer ones")
	}
	for _, s := range stories {
		s.untilPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func killed(t *testing.T) {
	changeOperator(t, func(spec *appsv1.DeploymentSpec) {
		// With a short Lease, most kills interrupt work and not the wait for the Lease.
		spec.Template.Spec.Containers[0].Env = append(spec.Template.Spec.Containers[0].Env,
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_LEASE_DURATION", Value: "4s"},
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_RENEW_DEADLINE", Value: "3s"},
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_RETRY_PERIOD", Value: "500ms"})
	})
	// The sequences are created first, because the webhook is unavailable without the operator.
	var stories []*story
	for i := range 10 {
		stories = append(stories, createSequence(t, countdown(fmt.Sprintf("killed-%d", i), 8)))
	}
	kills := 0
	for ; kills < 8 && !allEnded(stories); kills++ {
		before := lease(t)
		time.Sleep(rand.N(2 * time.Second))
		if pod := leader(t); kills%2 == 0 {
			signal(t, pod, operatorName, "KILL")
		} else {
			// Unlike the same Pod, a new one has no restart backoff.
			forceDelete(t, pod)
		}
		untilAnotherLeads(t, holder(before))
	}
	t.Logf("the operator was killed %d times", kills)
	if kills < 4 {
		t.Errorf("the sequences ended after %d kills: this test needs longer ones", kills)
	}
	for _, s := range stories {
		s.untilPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func allEnded(stories []*story) bool {
	for _, s := range stories {
		if s.now().Status.CompletionTime == nil {
			return false
		}
	}
	return true
}
