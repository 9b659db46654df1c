package volumes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestVolumeIsAWorldWritableDirectoryUntilItIsDeleted(t *testing.T) {
	provisioner := Provisioner{Dir: t.TempDir()}
	reclaim := corev1.PersistentVolumeReclaimDelete
	volume, _, err := provisioner.Provision(context.Background(), controller.ProvisionOptions{
		PVName:       "pvc-1",
		PVC:          &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
		StorageClass: &storagev1.StorageClass{ReclaimPolicy: &reclaim},
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(provisioner.Dir, "pvc-1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o777 {
		t.Errorf("mode %o, want 777", got)
	}
	if err := provisioner.Delete(context.Background(), volume); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(provisioner.Dir, "pvc-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

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
