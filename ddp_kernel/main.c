// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device /dev/ddp: an open file is a domain, requests are those of xsock/ddp_uapi.h. The node
 * is root's; who else may use it is for the administrator to say, by a udev rule.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "ddp.h"

atomic_t ddp_live_domains = ATOMIC_INIT(0);
atomic_t ddp_live_regions = ATOMIC_INIT(0);
atomic_t ddp_live_sockets = ATOMIC_INIT(0);
atomic_t ddp_live_pages = ATOMIC_INIT(0);

static struct dentry *debug_folder;

static void domain_free(struct kref *refs)
{
	struct ddp_domain *domain = container_of(refs, struct ddp_domain, refs);

	atomic_dec(&ddp_live_domains);
	kfree_rcu(domain, rcu);
}

void ddp_domain_put(struct ddp_domain *domain)
{
	kref_put(&domain->refs, domain_free);
}

/*
 * The address space ends, though a child that was forked may keep the file open. Called by then, or
 * by mmu_notifier_unregister(), or by both.
 */
static void on_mm_end(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	ddp_regions_end(container_of(notifier, struct ddp_domain, mm_end));
}

static const struct mmu_notifier_ops mm_end_ops = {
	.release = on_mm_end,
};

static int ddp_open(struct inode *inode, struct file *file)
{
	struct ddp_domain *domain;
	int error;

	if (!current->mm)
		return -EINVAL;
	domain = kzalloc(sizeof(*domain), GFP_KERNEL_ACCOUNT);
	if (!domain)
		return -ENOMEM;
	error = ddp_regions_init(domain);
	if (error) {
		kfree(domain);
		return error;
	}
	kref_init(&domain->refs);
	domain->mm = current->mm;
	domain->mm_end.ops = &mm_end_ops;
	error = mmu_notifier_register(&domain->mm_end, domain->mm);
	if (error) {
		ddp_regions_end(domain);
		kfree(domain);
		return error;
	}
	atomic_inc(&ddp_live_domains);
	file->private_data = domain;
	return stream_open(inode, file);
}

static int ddp_close(struct inode *inode, struct file *file)
{
	struct ddp_domain *domain = file->private_data;

	/* Ends the regions, if the address space has not done so. */
	mmu_notifier_unregister(&domain->mm_end, domain->mm);
	domain->mm = NULL;
	ddp_domain_put(domain);
	return 0;
}

/* ---- Requests ------------------------------------------------------------ */

union argument {
	struct ddp_hello hello;
	struct ddp_region region;
	struct ddp_stag stag;
	struct ddp_bind bind;
	struct ddp_rights rights;
	struct ddp_unbind unbind;
	struct ddp_stats stats;
};

static int do_hello(struct ddp_domain *domain, union argument *arg)
{
	arg->hello = (struct ddp_hello){
		.abi = DDP_ABI,
		.recv_min = DDP_RECV_MIN,
		.features = DDP_FEATURE_CRC | DDP_FEATURE_NO_CRC | DDP_FEATURE_AHEAD |
			    DDP_FEATURE_VIEWS | DDP_FEATURE_READS | DDP_FEATURE_MARKERS,
		.max_region_bytes = DDP_MAX_REGION_BYTES,
		.max_regions = DDP_MAX_REGIONS,
		.max_sockets = DDP_MAX_SOCKETS,
		.hook_bytes = DDP_HOOK_OCTETS,
	};
	return 0;
}

static int do_region(struct ddp_domain *domain, union argument *arg)
{
	return ddp_region_add(domain, &arg->region);
}

static int do_revoke(struct ddp_domain *domain, union argument *arg)
{
	return arg->stag.flags ? -EINVAL : ddp_region_revoke(domain, arg->stag.stag);
}

static int do_release(struct ddp_domain *domain, union argument *arg)
{
	return arg->stag.flags ? -EINVAL : ddp_region_release(domain, arg->stag.stag);
}

static int do_show(struct ddp_domain *domain, union argument *arg)
{
	return arg->stag.flags ? -EINVAL : ddp_region_show(domain, arg->stag.stag);
}

static int do_check(struct ddp_domain *domain, union argument *arg)
{
	return arg->stag.flags ? -EINVAL : ddp_region_check(domain, arg->stag.stag);
}

static int do_bind(struct ddp_domain *domain, union argument *arg)
{
	return ddp_sock_bind(domain, &arg->bind);
}

static int do_rights(struct ddp_domain *domain, union argument *arg)
{
	return ddp_sock_rights(domain, &arg->rights);
}

static int do_unbind(struct ddp_domain *domain, union argument *arg)
{
	return ddp_sock_unbind(domain, &arg->unbind);
}

static int do_stats(struct ddp_domain *domain, union argument *arg)
{
	return ddp_sock_stats(domain, &arg->stats);
}

static const struct request {
	unsigned int number;
	int (*run)(struct ddp_domain *domain, union argument *arg);
} requests[] = {
	{ DDP_IOC_HELLO, do_hello },	 { DDP_IOC_REGION, do_region },
	{ DDP_IOC_REVOKE, do_revoke },	 { DDP_IOC_RELEASE, do_release },
	{ DDP_IOC_BIND, do_bind },	 { DDP_IOC_RIGHTS, do_rights },
	{ DDP_IOC_UNBIND, do_unbind },	 { DDP_IOC_STATS, do_stats },
	{ DDP_IOC_SHOW, do_show },	 { DDP_IOC_CHECK, do_check },
};

/* The size in the number is the caller's: it may know a shorter structure, or a longer one. */
static const struct request *find_request(unsigned int number)
{
	const unsigned int size_bits = IOCSIZE_MASK;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(requests); i++)
		if ((requests[i].number & ~size_bits) == (number & ~size_bits))
			return &requests[i];
	return NULL;
}

static int answer(void __user *to, size_t user_size, const union argument *arg, size_t size)
{
	if (copy_to_user(to, arg, min(user_size, size)))
		return -EFAULT;
	if (user_size > size && clear_user(to + size, user_size - size))
		return -EFAULT;
	return 0;
}

static long ddp_ioctl(struct file *file, unsigned int number, unsigned long pointer)
{
	struct ddp_domain *domain = file->private_data;
	const struct request *request = find_request(number);
	void __user *user = (void __user *)pointer;
	union argument arg = {};
	int error;

	if (!request)
		return -ENOTTY;
	if (current->mm != domain->mm)
		return -EPERM;
	if (!_IOC_SIZE(number))
		return -EINVAL;
	error = copy_struct_from_user(&arg, _IOC_SIZE(request->number), user, _IOC_SIZE(number));
	if (error)
		return error;
	error = request->run(domain, &arg);
	if (!error && _IOC_DIR(number) & _IOC_READ)
		error = answer(user, _IOC_SIZE(number), &arg, _IOC_SIZE(request->number));
	return error;
}

static const struct file_operations ddp_file_operations = {
	.owner = THIS_MODULE,
	.open = ddp_open,
	.release = ddp_close,
	.unlocked_ioctl = ddp_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice ddp_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ddp",
	.fops = &ddp_file_operations,
	.mode = 0600,
};

/* ---- Loading --------------------------------------------------------------- */

static void make_debug_folder(void)
{
	debug_folder = debugfs_create_dir("ddp", NULL);
	debugfs_create_atomic_t("domains", 0400, debug_folder, &ddp_live_domains);
	debugfs_create_atomic_t("regions", 0400, debug_folder, &ddp_live_regions);
	debugfs_create_atomic_t("sockets", 0400, debug_folder, &ddp_live_sockets);
	debugfs_create_atomic_t("pages", 0400, debug_folder, &ddp_live_pages);
	ddp_counters_show_in(debug_folder);
}

static int __init ddp_init(void)
{
	int error;

	error = ddp_ulp_register();
	if (error)
		return error;
	error = misc_register(&ddp_device);
	if (error) {
		ddp_ulp_unregister();
		return error;
	}
	make_debug_folder();
	return 0;
}

static void __exit ddp_exit(void)
{
	debugfs_remove_recursive(debug_folder);
	ddp_ulp_unregister();
	misc_deregister(&ddp_device);
	rcu_barrier(); /* what is freed behind a grace period */
}

module_init(ddp_init);
module_exit(ddp_exit);

MODULE_DESCRIPTION("Places tagged DDP payload (RFC 5041) of TCP connections as it arrives");
MODULE_AUTHOR("xsock maintainers");
MODULE_LICENSE("GPL");
