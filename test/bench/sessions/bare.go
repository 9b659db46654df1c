package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// measureBareClient creates the objects of one burst of sessions, with one create request for
// each object and nothing in between. It needs no AgenticSessions and stores no status.
func (env *environment) measureBareClient(ctx context.Context, c *harness.Cluster, o *objectObserver) ([]time.Duration, error) {
	startTimes := map[types.UID]time.Time{}
	group, requests := errgroup.WithContext(ctx)
	for i := range env.burst {
		uid, name := uuid.NewUUID(), fmt.Sprintf("bare-%03d", i)
		startTimes[uid] = time.Now()
		group.Go(func() error {
			before, tried, job := env.newSessionObjects(name, uid)
			for _, object := range before {
				if err := c.Create(requests, object); err != nil {
					return err
				}
			}
			if err := c.Create(requests, tried, client.DryRunAll); err != nil {
				return err
			}
			return c.Create(requests, job)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return waitForEach(ctx, o, startTimes, o.jobCreationTime)
}

// newSessionObjects returns the objects of one session: those that are created before the dry
// run of its Pod, that Pod, and the Job.
func (env *environment) newSessionObjects(name string, uid types.UID) (before []client.Object, tried *corev1.Pod, job *batchv1.Job) {
	metadata := env.ObjectMeta(name)
	metadata.Labels = map[string]string{agenticsession.LabelSessionUID: string(uid)}
	account := &corev1.ServiceAccount{ObjectMeta: metadata}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metadata}
	policy.Spec.PodSelector.MatchLabels = metadata.Labels
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	secret := &corev1.Secret{ObjectMeta: metadata, StringData: map[string]string{"prompt": "Do what is to be done."}}
	job = &batchv1.Job{ObjectMeta: metadata}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template.Labels, job.Spec.Template.Annotations = metadata.Labels, endless
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: name,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "runner", Image: "registry.example/runner:1", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	tried = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: string(env.Environment)}, Spec: *job.Spec.Template.Spec.DeepCopy()}
	return []client.Object{account, policy, secret}, tried, job
}
