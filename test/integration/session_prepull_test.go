package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/agenticsession"
	"github.com/yardmaster/yardmaster/test/poll"
)

// prepull returns the DaemonSet of the SessionRunner; nil if it does not exist.
func (s *sessionTest) prepull() *appsv1.DaemonSet {
	s.t.Helper()
	d := &appsv1.DaemonSet{}
	err := cluster.Get(s.t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: agenticsession.PrepullName("default")}, d)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil || !d.DeletionTimestamp.IsZero() {
		return nil
	}
	return d
}

func (s *sessionTest) waitForPrepull(what string, condition func(d *appsv1.DaemonSet) bool) {
	s.t.Helper()
	poll.Until(s.t, "the DaemonSet "+what, func() bool { return condition(s.prepull()) })
}

func pulls(image string) func(d *appsv1.DaemonSet) bool {
	return func(d *appsv1.DaemonSet) bool {
		return d != nil && len(d.Spec.Template.Spec.InitContainers) == 2 && d.Spec.Template.Spec.InitContainers[1].Image == image
	}
}

func TestImagesOfASessionRunnerArePulledWhilePrepullIsSet(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(_ *v1alpha1.AgenticSession, r *v1alpha1.SessionRunner) {
		r.Spec.Image, r.Spec.Prepull = "agent:1", true
	})
	s.waitForPrepull("to pull the image", pulls("agent:1"))
	if d := s.prepull(); !metav1.IsControlledBy(d, s.getRunner()) {
		t.Errorf("owners %+v", d.OwnerReferences)
	}
	s.patchRunner(`{"image": "agent:2"}`)
	s.waitForPrepull("to pull the new image", pulls("agent:2"))
	before := s.prepull()
	if err := cluster.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	s.waitForPrepull("to be created again", func(d *appsv1.DaemonSet) bool { return pulls("agent:2")(d) && d.UID != before.UID })
	s.patchRunner(`{"prepull": false}`)
	s.waitForPrepull("to be deleted", func(d *appsv1.DaemonSet) bool { return d == nil })
}

func TestDaemonSetOfSomebodyElseIsNotChangedByPrepull(t *testing.T) {
	t.Parallel()
	s := createSession(t, func(*v1alpha1.AgenticSession, *v1alpha1.SessionRunner) {})
	labels := map[string]string{"app": "other"}
	other := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: agenticsession.PrepullName("default"), Namespace: s.key.Namespace}}
	other.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	other.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a:1"}}}}
	if err := cluster.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	before := sumMetric(t, "yardmaster_session_prepull_refused_total", "", "")
	s.patchRunner(`{"prepull": true}`)
	poll.Until(t, "the event", func() bool {
		var list eventsv1.EventList
		if err := cluster.List(t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Reason == v1alpha1.EventPrepullRefused && list.Items[i].Regarding.Kind == "SessionRunner" {
				return true
			}
		}
		return false
	})
	if after := sumMetric(t, "yardmaster_session_prepull_refused_total", "", ""); after <= before {
		t.Errorf("the metric is %g after a refusal, as before", after)
	}
	s.patchRunner(`{"prepull": false}`)
	if d := s.prepull(); d == nil || d.UID != other.UID || d.Generation != other.Generation {
		t.Errorf("the DaemonSet is %+v", d)
	}
}
