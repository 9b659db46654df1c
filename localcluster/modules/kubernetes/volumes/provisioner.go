// Package volumes provisions PersistentVolumes as directories of the machine.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Provisioner creates a directory below Dir for each claim, and deletes it with
// its volume. There is one node, so a directory can be used from any Pod.
type Provisioner struct {
	Dir string
}

// Provision creates the directory of one claim.
func (p Provisioner) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	claim := options.PVC
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		return nil, controller.ProvisioningFinished, errors.New("block volumes are not supported")
	}
	dir := filepath.Join(p.Dir, options.PVName)
	if err := makeWritable(dir); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	hostPathType := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   claim.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &hostPathType},
			},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete deletes the directory of one volume.
func (p Provisioner) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	source := volume.Spec.HostPath
	if source == nil || filepath.Dir(source.Path) != filepath.Clean(p.Dir) {
		return &controller.IgnoredError{Reason: "not a directory of this provisioner"}
	}
	return os.RemoveAll(source.Path)
}

// makeWritable gives every user write access, since the kubelet applies no fsGroup
// to a hostPath volume. Mkdir would apply the umask to the mode.
func makeWritable(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("creating the volume's directory: %w", err)
	}
	return os.Chmod(dir, 0o777)
}
