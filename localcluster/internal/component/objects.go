package component

import "fmt"

// Object is something to create in the API server, in the collection at Path.
type Object struct {
	Path string
	Body any
}

// StorageClass is the default class, whose volumes are directories.
func StorageClass() Object {
	return Object{"/apis/storage.k8s.io/v1/storageclasses", object{
		"apiVersion": "storage.k8s.io/v1",
		"kind":       "StorageClass",
		"metadata": object{
			"name":        "standard",
			"annotations": object{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		"provisioner":       VolumeProvisioner,
		"reclaimPolicy":     "Delete",
		"volumeBindingMode": "Immediate",
	}}
}

// SimulatedNode is a node that kwok simulates, with more capacity than any test
// needs.
func SimulatedNode(index int) Object {
	name := fmt.Sprintf("simulated-%d", index)
	room := object{"cpu": "1000", "memory": "1Ti", "pods": "100000", "ephemeral-storage": "1Ti"}
	return Object{"/api/v1/nodes", object{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": object{
			"name": name,
			"labels": object{
				"kubernetes.io/hostname": name,
				"kubernetes.io/os":       "linux",
				"kubernetes.io/arch":     "amd64",
			},
		},
		"status": object{"capacity": room, "allocatable": room},
	}}
}
