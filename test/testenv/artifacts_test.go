package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

func TestObjectsAndEventsOfANamespaceAreSavedInTheFolderOfThePackage(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TEST_ARTIFACTS", base)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	named := metav1.ObjectMeta{Namespace: "team", Name: "one"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&batchv1.Job{ObjectMeta: named}, &corev1.Pod{ObjectMeta: named}, &v1alpha1.Queue{ObjectMeta: named},
		&v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "elsewhere"}},
		&corev1.Event{ObjectMeta: named, Type: "Normal", Reason: "QueueCreated", Message: "created", InvolvedObject: corev1.ObjectReference{Kind: "Queue", Name: "one"}},
	).Build()
	file, err := SaveObjects(t.Context(), c, "team")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(base, "testenv", "team.yaml"); file != want {
		t.Errorf("the file is %s, want %s", file, want)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: Job\n", "kind: Pod\n", "kind: Queue\n", `Normal Queue/one QueueCreated: "created"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "elsewhere") {
		t.Errorf("an object of another namespace is saved:\n%s", text)
	}
}
