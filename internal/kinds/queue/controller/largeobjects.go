package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimQueue is a cache transform, which only removes large annotations.
var TrimQueue = kube.TrimLarge(isLarge, func(*v1alpha1.Queue) {})

// isLarge returns false: all fields of a Queue are short.
func isLarge(*v1alpha1.Queue) bool { return false }
