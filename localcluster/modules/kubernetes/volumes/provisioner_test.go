package volumes

import (
	"context"
	"errors"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestDeleteRefusesDirectoriesThatItDidNotCreate(t *testing.T) {
	elsewhere := t.TempDir()
	provisioner := Provisioner{Dir: t.TempDir()}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: elsewhere},
	}}}
	var ignored *controller.IgnoredError
	if err := provisioner.Delete(context.Background(), volume); !errors.As(err, &ignored) {
		t.Errorf("got %v, want an IgnoredError", err)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Errorf("the directory of someone else is gone: %v", err)
	}
}
