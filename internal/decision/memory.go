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
	size := 0
	switch value.Kind() {
	case reflect.String:
		return value.Len()
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			return int(value.Elem().Type().Size()) + referenced(value.Elem())
		}
	case reflect.Slice:
		if value.Len() == 0 {
			return 0
		}
		element := value.Type().Elem()
		size = value.Len() * int(element.Size())
		if refers(element) {
			for i := range value.Len() {
				size += referenced(value.Index(i))
			}
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
		for _, i := range referringFields(value.Type()) {
			size += referenced(value.Field(i))
		}
	default: // other kinds have a fixed size; objects have no arrays that refer to memory
	}
	return size
}

func refers(kind reflect.Type) bool {
	switch kind.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		return true
	case reflect.Struct:
		return len(referringFields(kind)) > 0
	default:
		return false
	}
}

// fieldsByType remembers the results of referringFields, which each object needs many times.
var fieldsByType sync.Map

// referringFields returns the indexes of the fields of a struct that may refer to memory. All times share their locations.
func referringFields(kind reflect.Type) []int {
	if known, found := fieldsByType.Load(kind); found {
		return known.([]int) //nolint:forcetypeassert // only such lists are stored
	}
	var fields []int
	if kind != reflect.TypeFor[time.Time]() {
		for i := range kind.NumField() {
			if refers(kind.Field(i).Type) {
				fields = append(fields, i)
			}
		}
	}
	fieldsByType.Store(kind, fields)
	return fields
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
