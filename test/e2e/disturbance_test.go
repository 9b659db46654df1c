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

func testCertificateIsRenewed(t *testing.T) {
	before := leaderPod(t)
	calls := callWebhook(t)
	emptied := certificateSecret(t)
	original := emptied.DeepCopy()
	emptied.Data = nil
	requireNoError(t, cluster.Patch(t.Context(), emptied, client.MergeFrom(original)))
	waitForNewCertificate(t, original.Data["ca.crt"])

	// The operator may not create Secrets: an installation that lost its Secret is
	// fixed by installing again.
	original = certificateSecret(t)
	requireNoError(t, cluster.Delete(t.Context(), original))
	requireNoError(t, webhookServes(t.Context()))
	requireNoError(t, cluster.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: certificateSecretName, Namespace: operatorNamespace}}))
	waitForNewCertificate(t, original.Data["ca.crt"])
	// Between the API server's trust in a new CA and the operator's use of it there is a
	// moment in which the webhook cannot be called.
	t.Logf("%d requests in between failed: %v", len(calls.stopCalling()), errors.Join(calls.stopCalling()...))

	after := leaderPod(t)
	if after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != before.Status.ContainerStatuses[0].RestartCount {
		t.Error("the operator was started again")
	}
}

// waitForNewCertificate waits until the webhook is served with a certificate of another CA,
// which the API server trusts.
func waitForNewCertificate(t *testing.T, oldCA []byte) {
	t.Helper()
	start := time.Now()
	var ca []byte
	eventually(t, "a new CA that the API server trusts", func() bool {
		ca = certificateSecret(t).Data["ca.crt"]
		return len(ca) > 0 && !bytes.Equal(ca, oldCA) && bytes.Equal(ca, readTrustedCA(t))
	})
	address := forwardPort(t, "service/yardmaster-webhook", "443")
	eventually(t, "the new certificate to be served", func() bool { return servesCertificateOf(t, address, ca) })
	eventually(t, "the webhook to be called", func() bool { return webhookServes(t.Context()) == nil })
	took := roundedSince(start)
	if limit := 30 * time.Second; took > limit {
		t.Errorf("that took %v, want at most %v", took, limit)
	}
	t.Logf("a new certificate was served after %v", took)
}

// servesCertificateOf reports whether the webhook at address has a certificate by this CA.
func servesCertificateOf(t *testing.T, address string, ca []byte) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the CA is no certificate")
	}
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "yardmaster-webhook." + operatorNamespace + ".svc"}}
	connection, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

func testRollingRestart(t *testing.T) {
	s := createSequence(t, newShortSequence("restarted", 8))
	calls := callWebhook(t)
	before := currentLease(t)

	restarted := operatorDeployment(t)
	original := restarted.DeepCopy()
	restarted.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = time.Now().Format(time.RFC3339)
	requireNoError(t, cluster.Patch(t.Context(), restarted, client.MergeFrom(original)))
	requireNoError(t, waitForOperator(t.Context()))
	after := currentLease(t)
	if leaseHolder(after) == leaseHolder(before) {
		t.Fatal("the same process leads")
	}
	// Up to 2 s after the last renewal the leader stops, and up to 2.2 times those 2 s later
	// the next one asks for the Lease again. One that is not given back takes 15 s.
	leaderless := after.Spec.AcquireTime.Sub(calls.lastRenewal(leaseHolder(before)))
	if limit := 10 * time.Second; leaderless > limit {
		t.Errorf("nobody led for %v, want at most %v", leaderless, limit)
	}
	t.Logf("the last sign of the old leader was %v before the first of the new one", leaderless.Round(pollInterval))

	for _, err := range calls.stopCalling() {
		t.Errorf("a request failed: %v", err)
	}
	s.waitForPhase(v1alpha1.PhaseCompleted)
	s.wantEachStepOnce()
}

// webhookCaller calls the webhook time and again, and watches the Lease.
type webhookCaller struct {
	stop   context.CancelFunc
	done   chan struct{}
	errs   []error
	leases chan map[string]time.Time
}

func callWebhook(t *testing.T) *webhookCaller {
	ctx, stop := context.WithCancel(t.Context())
	c := &webhookCaller{stop: stop, done: make(chan struct{}), leases: make(chan map[string]time.Time, 1)}
	c.leases <- map[string]time.Time{}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.callOnce(ctx)
		}
	}()
	t.Cleanup(func() { c.stopCalling() })
	return c
}

func (c *webhookCaller) callOnce(ctx context.Context) {
	if err := webhookServes(ctx); err != nil && ctx.Err() == nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
	}
	lease, err := readLease(ctx)
	if err == nil && leaseHolder(lease) != "" {
		renewals := <-c.leases
		renewals[leaseHolder(lease)] = lease.Spec.RenewTime.Time
		c.leases <- renewals
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// lastRenewal is when a holder was last seen to renew the Lease.
func (c *webhookCaller) lastRenewal(holder string) time.Time {
	renewals := <-c.leases
	defer func() { c.leases <- renewals }()
	return renewals[holder]
}

// stopCalling ends the calls and returns those that failed.
func (c *webhookCaller) stopCalling() []error {
	c.stop()
	<-c.done
	return c.errs
}

func testFailover(t *testing.T) {
	changeOperator(t, func(spec *appsv1.DeploymentSpec) { spec.Replicas = new(int32(2)) })
	var sequences []*sequenceTest
	for range 4 {
		sequences = append(sequences, createSequence(t, newShortSequence("fail-over", 10)))
	}
	sequences[0].waitForRunningPod("t-9")

	hung := leaderPod(t)
	restarts := hung.Status.ContainerStatuses[0].RestartCount
	before := leaseHolder(currentLease(t))
	start := time.Now()
	sendSignal(t, hung, operatorName, "STOP")
	waitForAnotherLeader(t, before)
	t.Logf("another led %v after the leader hung", roundedSince(start))
	if leaderPod(t).UID == hung.UID {
		t.Error("the Pod that hangs leads again")
	}
	// It wakes in the belief that it leads, and ends as soon as it finds that it does not.
	sendSignal(t, hung, operatorName, "CONT")
	eventually(t, "the old leader to restart", func() bool {
		return objectExists(t, hung) && hung.Status.ContainerStatuses[0].RestartCount > restarts
	})

	// (A process that is killed is started again at once, and may be the next leader.)
	before = leaseHolder(currentLease(t))
	start = time.Now()
	sendSignal(t, leaderPod(t), operatorName, "KILL")
	waitForAnotherLeader(t, before)
	t.Logf("another led %v after the leader was killed", roundedSince(start))
	if allFinished(sequences) {
		t.Error("the sequences had ended by then: they are too short for this")
	}
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func testOperatorIsKilled(t *testing.T) {
	changeOperator(t, func(spec *appsv1.DeploymentSpec) {
		// A short Lease, so that it is the work that is disturbed and not the waiting.
		spec.Template.Spec.Containers[0].Env = append(spec.Template.Spec.Containers[0].Env,
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_LEASE_DURATION", Value: "4s"},
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_RENEW_DEADLINE", Value: "3s"},
			corev1.EnvVar{Name: "YARDMASTER_LEADER_ELECTION_RETRY_PERIOD", Value: "500ms"})
	})
	// The webhook is away while the operator is: the sequences are there before.
	var sequences []*sequenceTest
	for i := range 10 {
		sequences = append(sequences, createSequence(t, newShortSequence(fmt.Sprintf("killed-%d", i), 8)))
	}
	kills := 0
	for ; kills < 8 && !allFinished(sequences); kills++ {
		before := currentLease(t)
		time.Sleep(rand.N(2 * time.Second)) // the random moment
		if pod := leaderPod(t); kills%2 == 0 {
			sendSignal(t, pod, operatorName, "KILL")
		} else {
			// A new Pod, which is not held back for its crashes.
			forceDeletePod(t, pod)
		}
		waitForAnotherLeader(t, leaseHolder(before))
	}
	t.Logf("the operator was killed %d times", kills)
	if kills < 4 {
		t.Errorf("the sequences ended after %d kills: they are too short for this", kills)
	}
	for _, s := range sequences {
		s.waitForPhase(v1alpha1.PhaseCompleted)
		s.wantEachStepOnce()
	}
}

func allFinished(sequences []*sequenceTest) bool {
	for _, s := range sequences {
		if s.readSequence().Status.CompletionTime == nil {
			return false
		}
	}
	return true
}
