package decision

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// MemoryOf estimates the bytes of memory that an object occupies with everything it refers to. Its size as JSON is no measure: an
// empty element of a list is three bytes of JSON, and up to a kilobyte of memory.
func MemoryOf(object any) int {
	value := reflect.ValueOf(object)
	if !value.IsValid() {
		return 0
	}
	return int(value.Type().Size()) + referenced(value)
}

// referenced returns the bytes that a value refers to, without the value itself. Unused capacity of lists does not count: the cache
// stores copies.
func referenced(value reflect.Value) int {
	if !refers(value.Type()) {
		return 0
	}
	size := 0
	switch value.Kind() {
	case reflect.String:
		return value.Len()
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			return int(value.Elem().Type().Size()) + referenced(value.Elem())
		}
	case reflect.Slice:
		size = value.Len() * int(value.Type().Elem().Size())
		if !refers(value.Type().Elem()) {
			return size
		}
		for i := range value.Len() {
			size += referenced(value.Index(i))
		}
	case reflect.Map:
		if value.Len() == 0 {
			return 0
		}
		const header = 48
		places := 8 // doubled when seven eighths of them are used
		for value.Len() > 8 && value.Len() > places/8*7 {
			places *= 2
		}
		size = header + places*(1+int(value.Type().Key().Size()+value.Type().Elem().Size()))
		for entries := value.MapRange(); entries.Next(); {
			size += referenced(entries.Key()) + referenced(entries.Value())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			size += referenced(value.Field(i))
		}
	case reflect.Array:
		for i := range value.Len() {
			size += referenced(value.Index(i))
		}
	default: // other kinds have a fixed size
	}
	return size
}

// reference remembers which types may refer to memory.
var reference sync.Map

func refers(kind reflect.Type) bool {
	if known, found := reference.Load(kind); found {
		return known.(bool) //nolint:forcetypeassert // only booleans are stored
	}
	answer := false
	switch kind.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		answer = true
	case reflect.Array:
		answer = refers(kind.Elem())
	case reflect.Struct:
		for i := range kind.NumField() {
			answer = answer || refers(kind.Field(i).Type)
		}
		answer = answer && kind != reflect.TypeFor[time.Time]() // all times share their locations
	default:
	}
	reference.Store(kind, answer)
	return answer
}

// MaxSpecBytes is the memory that the spec of a Policy or SessionRunner may need. Controllers of other kinds read these objects again
// and again, so the cache keeps them as a whole.
const MaxSpecBytes = 128 << 10

// AnnotationTooLarge marks an object without its spec in the cache.
const AnnotationTooLarge = v1alpha1.Prefix + "too-large"

// TooLargeMessage is what is wrong with such a spec.
const TooLargeMessage = "needs more than 128 KiB of memory"

// IsTooLarge reports whether a spec needs more than MaxSpecBytes, or the cache has dropped it for that reason.
func IsTooLarge(object metav1.Object, spec any) bool {
	_, dropped := object.GetAnnotations()[AnnotationTooLarge]
	return dropped || MemoryOf(spec) > MaxSpecBytes
}
